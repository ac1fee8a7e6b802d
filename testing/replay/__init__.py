"""Recorded and scripted sessions: transcripts, and an orchestrator and a provider without a model.

`transcripts` feeds a recorded history to a context manager message by message; `loop` and `provider` run scripts.
Nothing is imported here: the kernel's loader imports the modules by name.
"""
