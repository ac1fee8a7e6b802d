"""The time is written as `datetime` writes it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.messages.timestamps import utc_now

MILLISECONDS = st.integers(0, 4_102_444_799_999)  # 1970 to 2099


@given(st.lists(MILLISECONDS | st.integers(1_700_000_000_000, 1_700_000_002_000), min_size=1, max_size=20))
def test_the_time_is_written_as_iso_8601_whatever_was_asked_before(moments: list[int]) -> None:
    for moment in moments:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time_ns", lambda moment=moment: moment * 1_000_000 + 999_999)
            written = utc_now()
        expected = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=moment)
        assert written == expected.isoformat(timespec="milliseconds")


def test_it_is_the_time_now() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    assert before <= datetime.fromisoformat(utc_now()) <= datetime.now(UTC)
