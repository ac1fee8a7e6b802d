"""Sessions in PostgreSQL. Begin with `store`; `..leased` holds what it shares with Redis."""
