"""A model provider on loopback: servers that check requests as the vendors do, and a provider that calls them."""
