"""The checks that every store makes before it does anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ConfigError, StoreError
from amplifier_context_core.stores import index_range
from amplifier_context_core.stores.validation import check_index, check_session_id


@pytest.mark.parametrize("character", ["x", "読"])
def test_an_id_is_as_long_as_a_file_name_may_be(character: str) -> None:
    most = 200 // len(character.encode())
    assert check_session_id(character * most)
    for more in (1, 100_000):
        with pytest.raises(ConfigError, match="longer than 200 bytes") as caught:
            check_session_id(character * (most + more))
        assert len(str(caught.value)) < 100
    with pytest.raises(ConfigError, match="session_id: must be text"):
        check_session_id(b"bytes")  # type: ignore[arg-type]


@given(st.text(max_size=220))
def test_any_valid_id_names_one_file_and_prints_on_one_line(session_id: str) -> None:
    try:
        check_session_id(session_id)
    except ConfigError as refused:
        text = str(refused)
    else:
        text = "fine"
        assert len(f"{session_id}.checkpoint.tmp-12345".encode()) <= 255
        assert not set(session_id) & {"/", "\\", "\0"}
        assert session_id not in (".", "..")
        assert session_id.isprintable()
    assert text.isprintable()
    assert len(text) < 3_000


@pytest.mark.parametrize(("index", "length"), [(1, 0), (4, 3), (-1, 3), (10**20, 3)])
def test_an_index_outside_the_history_is_an_error_that_names_its_length(index: int, length: int) -> None:
    check_index("s", length, length)
    with pytest.raises(StoreError, match=f"session 's' holds {length} messages, not {index:,}"):
        check_index("s", index, length)


@given(st.integers(0, 30), st.integers(-40, 40), st.none() | st.integers(-40, 40))
def test_index_range_is_that_of_a_slice(length: int, start: int, stop: int | None) -> None:
    found = index_range(length, start, stop)
    assert list(found) == list(range(length))[start:stop]
    assert found.step == 1
    assert 0 <= found.start <= length
    assert 0 <= found.stop <= length
