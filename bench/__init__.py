"""Speed and memory of the context manager, as a table: ``make bench``, or ``python -m bench --help``.

The figures are of one machine at one time. A figure that can be separated from the machine is a ratio to a baseline of
the same run. A figure that a user notices (a request, a compaction, a stall of the event loop) is in milliseconds, with
its target.
"""
