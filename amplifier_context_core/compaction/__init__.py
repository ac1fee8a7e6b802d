"""Making a view smaller: the ladder and its strategies. Pure: no I/O, no clock."""
