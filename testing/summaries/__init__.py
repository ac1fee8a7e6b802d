"""Writers of summaries without a model: one that extracts, some that fail, one that repeats recorded summaries."""
