"""Messages: one message as a dict, read once: its calls and results, its tokens, its time."""

from .parsing import calls_of

__all__ = ["calls_of"]
