"""What stores on servers share: leases, ordered calls, idempotent changes, and an event loop of their own."""
