"""Configuration: core's settings, where the history is kept, and what summaries may do.

Keys of the module that `context-simple` replaced have their meaning here: see `SPELLINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from amplifier_context_core import load_config
from amplifier_context_core.config import Config
from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores import Durability

MODULE = "context-summary"
SPELLINGS = {
    "summary_trigger": "summarize_at",
    "summarization_model": "summary_model",
    "summarization_prompt_path": "summary_prompt",
    "summarization_timeout_s": "summary_timeout",
}


class SummaryConfig(Config):
    """Core's settings, and those of summaries."""

    store: str = Field("memory:", min_length=1, description="URL of the store; `memory:` keeps nothing")
    durability: Durability = Field(
        "fsync", description="an acknowledged message is on disk (fsync), with the operating system (flush), or neither"
    )
    archive: bool = Field(True, description="keep what edits and interrupts take out of a history")
    summarize_at: float = Field(
        0.7, gt=0, le=1, description="share of the trigger at which a model is asked for the next chapter"
    )
    summary_background: bool = Field(True, description="false: a request waits for the summary that it needs")
    summary_provider: str | None = Field(
        None, min_length=1, description="mount name of the provider that is asked; default that of the session"
    )
    summary_model: str | None = Field(None, min_length=1, description="model that is asked; default the provider's")
    summary_writer: Literal["model", "native"] = Field(
        "model", description="native: the provider compacts the conversation itself, where it offers that"
    )
    summary_call: Literal["standalone"] = Field("standalone", description="a request of its own; `fork` is gone")
    summary_prompt: Path | None = Field(None, description="file with a prompt of your own")
    summary_input: int = Field(
        48_000, ge=500, description="tokens of history in one call, at most; a longer range is cut"
    )
    summary_output: int = Field(4_000, ge=200, description="tokens of one answer, at most")
    summary_tokens: int = Field(
        4_000,
        ge=200,
        description="size of the text, at most; a session with little room for chapters has a shorter one",
    )
    summary_timeout: float = Field(300, gt=0, description="seconds that a call may take")
    compact_wait: float = Field(60, ge=0, description="seconds that `context.compact` waits for a model")
    max_summary_calls: int = Field(24, ge=0, description="calls in ten minutes; 0: never ask a model")
    max_summary_tokens: int = Field(
        1_000_000,
        ge=0,
        description="tokens of calls in ten minutes: their input, and the longest answer of the next one",
    )
    summary_spend: float | None = Field(
        None,
        ge=0,
        description="what summaries may cost, as a share of what the session's input has cost until then; default "
        "0.12, of a cheaper model as much less as its input costs less",
    )


def load_summary_config(raw: Mapping[str, Any] | None) -> SummaryConfig:
    """Check a mount plan's config; keys of the replaced module are taken in their meaning here.

    Raises:
        ConfigError: a known key has an impossible value.
    """
    if not isinstance(raw, Mapping):
        return load_config(raw, module=MODULE, model=SummaryConfig)
    given = dict(raw)
    for spelling, key in SPELLINGS.items():
        if (value := given.pop(spelling, None)) is not None:
            given.setdefault(key, value)
    if given.get("summary_call") == "fork":
        raise ConfigError("summary_call", "forked calls are gone: leave the key out; a request of its own is sent")
    if given.get("compaction_strategy") == "summary":
        del given["compaction_strategy"]  # as this module does; any other has no meaning here
    return load_config(given, module=MODULE, model=SummaryConfig)
