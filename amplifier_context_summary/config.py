"""Configuration: core's settings, and where the history is kept."""

from __future__ import annotations

from pydantic import Field

from amplifier_context_core.config import Config
from amplifier_context_core.stores import Durability

MODULE = "context-summary"


class SummaryConfig(Config):
    """Core's settings, and where and how the history is kept."""

    store: str = Field("memory:", min_length=1, description="URL of the store; `memory:` keeps nothing")
    durability: Durability = Field(
        "fsync", description="where an acknowledged message is: on disk, with the system, or neither"
    )
    archive: bool = Field(True, description="keep what edits and interrupts take out of a history")
