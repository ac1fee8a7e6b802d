"""Sessions in Redis. Begin with `store`; `..servers` has what it shares with PostgreSQL."""
