"""What a session asks of its host. Modules are mounted, and capabilities offered, while the session is in use."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

log = logging.getLogger(__name__)


class Host:
    """The kernel's coordinator, which is asked when something is needed; without one, a host that offers nothing."""

    def __init__(self, coordinator: Any = None) -> None:
        self._coordinator = coordinator

    def tools(self) -> Mapping[str, object]:
        """Return the tools that requests offer, by name."""
        return self.mounted("tools")

    def mounted(self, point: str) -> Mapping[str, object]:
        mounted = self._coordinator.get(point) if self._coordinator is not None else None
        return cast("Mapping[str, object]", mounted) if isinstance(mounted, Mapping) else {}

    def active_operations(self) -> object:
        """See `calls_of_operations`. Return None if there is no capability or it fails: that must stop no request."""
        capability = self._capability("context.active_operations")
        try:
            return capability() if callable(capability) else None
        except Exception as problem:  # noqa: BLE001 - code of other parties
            log.warning("a capability of the host failed (%s)", type(problem).__name__)
            return None

    def preserve_evidence(self) -> object:
        """Return what is awaited with the whole history before it is compacted; see `HostCheckpoint`."""
        return self._capability("context.preserve_evidence")

    def offer(self, name: str, capability: object) -> None:
        if self._coordinator is not None:
            self._coordinator.register_capability(name, capability)

    def _capability(self, name: str) -> object:
        return None if self._coordinator is None else self._coordinator.get_capability(name)
