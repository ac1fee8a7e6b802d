"""Checks of requests, and material for them: a checker of provider rules, odd conversations, builders of messages."""
