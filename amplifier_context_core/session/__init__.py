"""The session: its parts, opened and resumed, asked for views, saved and closed."""
