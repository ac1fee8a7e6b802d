"""The transcript: entries that are only appended, and how they are identified. Nothing here performs I/O."""
