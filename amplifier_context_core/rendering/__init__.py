"""Rendering: entries become messages that every provider accepts. Nothing here performs I/O."""
