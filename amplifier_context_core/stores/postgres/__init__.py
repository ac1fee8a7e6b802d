"""Sessions in PostgreSQL. Begin with `store`; `..servers` has what it shares with Redis."""
