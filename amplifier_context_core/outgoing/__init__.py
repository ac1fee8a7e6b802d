"""What a provider is sent of a view: a pure function of its messages and of what the request begins with."""
