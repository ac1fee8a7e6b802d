"""Why a provider writes the prefix of a request into its cache again, although it had a request before.

At such a moment another change of the view costs nothing extra: no cached prefix is given up. So a compaction that is
nearly due is made then, and what was made in the background is put into the view.
"""

from __future__ import annotations

from enum import StrEnum


class PrefixBreak(StrEnum):
    """Reports and events contain the values."""

    PROVIDER_CHANGE = "other provider or model"
    SYSTEM_PROMPT = "changed system prompt"
    TOOLS = "changed tools"
    COLD = "cold cache"
    COMPACTION = "compaction"
    BUDGET = "other budget"
    EDIT = "edited history"
    PROVIDER_SETTING = "provider setting"
    UNKNOWN = "unknown"
