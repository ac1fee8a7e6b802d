"""The history: the only writer of a transcript and of its store."""
