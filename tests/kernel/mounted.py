"""Which context module the tests of this folder mount: each runs once for every one it is meant for."""

import importlib
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Mounted:
    """A context module, and what the mount plan says besides."""

    module: str = "context-simple"
    config: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def package(self) -> str:
        return f"amplifier_{self.module.replace('-', '_')}"

    def entry(self, **config: Any) -> dict[str, Any]:
        return {"module": self.module, "config": {**self.config, **config}}

    async def mount(self, coordinator: Any, config: dict[str, Any] | None) -> Any:
        settings = {**self.config, **(config or {})} if self.config else config
        return await importlib.import_module(self.package).mount(coordinator, settings)


CURRENT = Mounted()
