"""The transcript: entries that are only appended, and what identifies them. Nothing here performs I/O."""
