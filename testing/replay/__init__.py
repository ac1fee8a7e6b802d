"""Recorded and scripted sessions: transcripts, and an orchestrator, a provider and tools that replay them.

`transcripts` feeds a recorded history to a context manager message by message. `recording` turns it into a session for
`loop` and `provider`, with `recorded_tools`. Nothing is imported here: the kernel's loader imports the modules by name.
"""
