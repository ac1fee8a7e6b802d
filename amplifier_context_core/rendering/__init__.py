"""Rendering: entries become messages that every provider accepts. Pure: no I/O, no clock."""
