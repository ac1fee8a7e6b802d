"""Arguments of calls as text: read as numbers were written, and without a second look at megabytes."""

from __future__ import annotations

import json
import time

import pytest

from amplifier_context_core.messages.parsing import Call, arguments_of, is_object_text


@pytest.mark.parametrize("number", [2**64 - 1, 2**64, -(2**63) - 1, 10**30])
def test_integers_past_64_bits_in_arguments_stay_exact(number: int) -> None:
    text = json.dumps({"ids": [{"id": number}], "share": 0.5})
    assert arguments_of(Call("c1", "count", text)) == {"ids": [{"id": number}], "share": 0.5}


def test_arguments_of_megabytes_are_searched_for_no_long_number() -> None:
    text = json.dumps({"path": "a.log", "text": "2026-03-01 the worker handled a request\n" * 500_000})
    begun = time.thread_time()
    assert is_object_text(text)
    assert time.thread_time() - begun < 0.12  # seconds; 0.25 with the search
