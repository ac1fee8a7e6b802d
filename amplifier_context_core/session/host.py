"""What a session asks of its host. Modules are mounted, and capabilities offered, while the session is in use."""

from __future__ import annotations

from collections.abc import Mapping


class Host:
    """A host that offers nothing. `kernel.py` has the one of a session that Amplifier runs."""

    def tools(self) -> Mapping[str, object]:
        """Return the tools that requests offer, by name."""
        return {}

    def active_operations(self) -> object:
        """See `calls_of_operations`."""
        return None

    def preserve_evidence(self) -> object:
        """Return what is awaited with the whole history before it is compacted; see `HostCheckpoint`."""
        return None

    def offer(self, name: str, capability: object) -> None: ...
