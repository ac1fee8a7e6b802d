"""The full-text index in memory: it finds what a scan finds, and follows the history."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.stores import word_index
from amplifier_context_core.stores.word_index import WordIndex
from amplifier_context_core.transcript.query import Term
from amplifier_context_core.transcript.search import ScanIndex
from amplifier_context_testing.contract.samples import entry

WORDS = ["alpha", "src/beta.py", "gamma_7", "登录", "DELTA", "epsilon", "naïve", "the", '"', "-", "\ud83d", "x"]
WORDS += ["getUserName", "username", "UserNa", "user_name", "a49f31bc", "49f31b"]
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), max_size=12)


@given(st.lists(texts, max_size=4), st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join), st.integers(0, 9))
def test_an_index_that_followed_edits_finds_what_a_scan_finds_in_the_same_order(
    histories: list[list[str]], query: str, limit: int
) -> None:
    index = WordIndex()
    kept = [entry(1, "alpha beta"), entry(2, "epsilon")]
    for contents in histories:
        history = [*kept, *(entry(seq, text) for seq, text in enumerate(contents, 3))]
        found = index.search(history, query, limit)
        assert found == ScanIndex().search(history, query, limit)
        assert all(any(one is each for each in history) for one in found)


def test_without_fts5_or_its_trigrams_the_history_is_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_index, "can_index", lambda db: False)
    history = [entry(1, "heron"), entry(2, "goose")]
    assert WordIndex().search(history, "heron", 5) == [history[0]]


@pytest.mark.parametrize("query", ["a." * 200_000, "x " * 200_000, "登录" * 100_000, '"' + "ab " * 100_000 + '"'])
def test_a_query_of_any_length_looks_for_few_words(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Watched(word_index.Fts):
        def having(self, terms: Sequence[Term], limit: int) -> list[int]:
            asked.extend(term.text for term in terms)
            return super().having(terms, limit)

    monkeypatch.setattr(word_index, "Fts", Watched)
    WordIndex().search([entry(1, "heron")], query, 5)
    assert len(asked) <= 200
    assert sum(map(len, asked)) <= 50_000
