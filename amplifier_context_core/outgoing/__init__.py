"""What a provider is sent of a view, given what the request begins with. Pure: no I/O, no clock."""
