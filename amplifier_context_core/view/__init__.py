"""The view: what the model is sent, when it is compacted, and how large it may be."""
