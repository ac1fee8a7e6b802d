"""The time is written as `datetime` writes it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from amplifier_context_core.messages.timestamps import utc_now


def test_it_is_the_time_now_to_the_millisecond() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    now = utc_now()
    assert before <= datetime.fromisoformat(now) <= datetime.now(UTC)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", now)
