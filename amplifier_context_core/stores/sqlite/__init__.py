"""Sessions in one SQLite database. Begin with `store`."""
