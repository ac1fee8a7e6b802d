"""A writer of summaries without a model, which extracts them."""
