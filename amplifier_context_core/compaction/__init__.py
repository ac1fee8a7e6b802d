"""Compaction: making a view smaller. A checkpoint, its chapters, and the strategies that write them."""
