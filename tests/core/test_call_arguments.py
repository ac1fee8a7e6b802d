"""Arguments of calls as text: read as numbers were written, and without a second look at megabytes."""

from __future__ import annotations

import json

import pytest

from amplifier_context_core.messages.parsing import Call, arguments_of


@pytest.mark.parametrize("number", [2**64 - 1, 2**64, -(2**63) - 1, 10**30])
def test_integers_past_64_bits_in_arguments_stay_exact(number: int) -> None:
    text = json.dumps({"ids": [{"id": number}], "share": 0.5})
    assert arguments_of(Call("c1", "count", text)) == {"ids": [{"id": number}], "share": 0.5}
