"""Mount plans of whole sessions over the wire, in a window so small that an explored folder outgrows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WINDOW = 7_000  # tokens
ANSWER = 500


def plan(module: str, api: str, address: str, folder: Path, **context: Any) -> dict[str, Any]:
    """Return a plan with a context module; keyword arguments are its config."""
    provider = {"api": api, "base_url": address, "context_window": WINDOW, "max_output_tokens": ANSWER}
    return {
        "session": {
            "orchestrator": {"module": "loop-replay", "config": {"style": "streaming"}},
            "context": {"module": module, "config": {"safety_margin": 200, **context}},
        },
        "providers": [{"module": "provider-wire", "config": provider}],
        "tools": [{"module": "tool-folder", "config": {"path": str(folder)}}],
    }
