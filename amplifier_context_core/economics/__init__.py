"""What a request may cost: its budget, the provider's counts, and the sizes above which a view is compacted."""
