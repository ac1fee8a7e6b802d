"""Messages: one message as a dict, parsed once: its calls and results, its texts, its tokens, its time."""

from .parsing import arguments_of, calls_of, results_of, text_of

__all__ = ["arguments_of", "calls_of", "results_of", "text_of"]
