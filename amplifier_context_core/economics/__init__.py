"""What a request may cost: its budget, the provider's counts, and when a view is compacted. Pure: no I/O, no clock."""
