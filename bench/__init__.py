"""Speed and memory of the context manager, as a table: ``make bench``, or ``python -m bench --help``.

Figures of one machine at one moment. What can be told apart from the machine is given as a ratio to a floor measured in
the same run; what a user feels (a request, a compaction, a stall of the event loop) in milliseconds, with its target.
"""
