"""A stored session as one page: what each request was sent, and what became of each message."""
