"""Sessions as files: one message a line, and beside it what else we need. Begin with `store`."""
