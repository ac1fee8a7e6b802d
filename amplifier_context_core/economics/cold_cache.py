"""How a provider keeps a cached prefix and for how long, and how long the pause before a request was.

A provider forgets a prefix that no request used for its time to live. How long that was is read from the times of the
messages alone: from the newest answer to the newest message. A message without a time gets that of its arrival, so in
an imported history without times there are no pauses. The same history gives the same view, whenever it is asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from ..messages.timestamps import seconds_of
from ..transcript.transcript import Snapshot
from .meter import Key

_MAX_SINCE_ANSWER = 1_000  # entries looked at for the newest answer; one answer calls fewer tools

# Seconds after its last use that a provider forgets a prefix, by a part of the name of the provider or of its model.
# The first row that fits counts. docs/caching.md has the sources.
CACHE_TTLS = (
    ("claude", 300),
    ("anthropic", 300),
    ("gpt", 1_800),
    ("openai", 1_800),
    ("gemini", 86_400),
)
UNKNOWN_TTL = 3_600  # the longest that callers pay for: a pause taken for a cold cache by mistake costs money


def default_ttl(key: Key) -> int:
    """Seconds after the last use."""
    provider, model = key
    name = f"{model} {provider}".lower()
    return next((seconds for part, seconds in CACHE_TTLS if part in name), UNKNOWN_TTL)


class PrefixBreak(StrEnum):
    """Why a provider writes the prefix of a request into its cache again, although it had a request before.

    At such a moment another change of the view costs nothing extra: no cached prefix is given up. So a compaction that
    is nearly due is made then, and what was made in the background is put into the view. Reports have the values.
    """

    PROVIDER_CHANGE = "other provider or model"
    SYSTEM_PROMPT = "changed system prompt"
    TOOLS = "changed tools"
    COLD = "cold cache"
    COMPACTION = "compaction"
    BUDGET = "other budget"
    EDIT = "edited history"
    PROVIDER_SETTING = "provider setting"
    UNKNOWN = "unknown"


_GPT = re.compile(r"gpt-(\d)(?:\.(\d{1,3}))?(?!\d)")  # one digit: Azure calls GPT-3.5 gpt-35
_EXACT_SINCE = (5, 6)  # GPT-5.6: a cached prefix is found exactly at a breakpoint (docs/caching.md)


def rewrites_all(key: Key) -> bool:
    """True if a provider writes all of a request again once its prefix changed, also the part that did not change.

    An OpenAI provider that names no model is taken for one of a new model.
    """
    provider, model = (name.lower() for name in key)
    if found := _GPT.search(model):
        return (int(found[1]), int(found[2] or 0)) >= _EXACT_SINCE
    return not model and "openai" in provider


@dataclass(frozen=True, slots=True)
class Pause:
    """The time between the newest answer of the model and the newest message."""

    after: int = 0  # seq of that answer; 0 when there is none
    seconds: float = 0.0  # at least 0

    def outlasts(self, cache_ttl: int) -> bool:
        """True if a provider forgets in that time what it cached; never if `cache_ttl` is 0."""
        return 0 < cache_ttl < self.seconds


def pause_of(history: Snapshot) -> Pause:
    """Return none where a time is missing or makes no sense."""
    newest = len(history) - 1
    for index in range(newest, max(-1, newest - _MAX_SINCE_ANSWER), -1):
        if index in history.gap:
            break
        entry = history[index]
        if entry.role == "assistant":
            begun, ended = seconds_of(entry.completed), seconds_of(history[newest].completed)
            if begun is None or ended is None:
                return Pause()
            return Pause(entry.seq, max(0.0, ended - begun))
    return Pause()
