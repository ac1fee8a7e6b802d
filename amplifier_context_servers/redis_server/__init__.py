"""Sessions in Redis. Begin with `store`; `..leased` holds what it shares with PostgreSQL."""
