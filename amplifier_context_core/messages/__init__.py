"""Messages: one message as a dict, parsed once: its calls and results, its tokens, its time."""

from .parsing import calls_of

__all__ = ["calls_of"]
