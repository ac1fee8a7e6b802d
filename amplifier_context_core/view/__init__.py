"""The view: what the model is sent, how it is compacted, and what is saved and reported of it."""
