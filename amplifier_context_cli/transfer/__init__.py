"""Sessions of other programs, read and written. Each format is a module of pure functions; `command` has the files."""
