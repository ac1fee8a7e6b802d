"""Search: originals are found by the words in them, in any part of an entry."""

import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core.stores.word_index import WordIndex
from amplifier_context_core.transcript import query as query_module
from amplifier_context_core.transcript.matching_lines import excerpts, words_of
from amplifier_context_core.transcript.query import Query, fold, names, root
from amplifier_context_core.transcript.question_hints import asked_dates, asked_role, speaker_label
from amplifier_context_core.transcript.search import ScanIndex
from tests.core.drafts import transcript
from tests.messages import Message, block, call, result, says, user
from tests.threads import longest_wait_beside


def found(query: str, *messages: Message, limit: int = 10) -> list[int]:
    """Return the seqs that a search finds, with an index and without one."""
    history = transcript(messages).snapshot()
    with_index, scanned = (
        [entry.seq for entry in index.search(history, query, limit)] for index in (WordIndex(), ScanIndex())
    )
    assert with_index == scanned
    return scanned


HISTORY = (
    user("Fix the loader in src/loader.py."),
    call("a", name="read_file", path="src/loader.py"),
    result("a", "def load(cache): ..."),
    says([{"type": "thinking", "thinking": "secret_thought"}, block("The cache is stale.")]),
    user([{"type": "tool_result", "tool_call_id": "b", "output": {"order": "ORDER-7731", "log": "a\nquagga_b"}}]),
    result("a", '{"stdout": "built\\nzebra_crossing\\n", "returncode": 0}'),
    user([block("Look:"), {"type": "tool_result", "tool_use_id": "c", "content": '{"stdout": "\\ngnu"}'}]),
)


def test_an_entry_is_found_by_what_it_says_calls_or_returns() -> None:
    queries = {"STALE": [4], "src/loader.py": [2, 1], "read_file": [2], "cache": [4, 3], "secret_thought": []}
    queries |= {"ORDER-7731": [5], "quagga": [5], "gnu": [7], "  ?!,;  ": []}
    queries |= {"zebra": [6]}  # not nzebra: the letter of an escape is none of the word
    assert {query: found(query, *HISTORY) for query in queries} == queries


LONG_LOG = "\n".join(f"line {number} of the heron log" for number in range(3_000))


@pytest.mark.parametrize(
    ("query", "messages", "seqs"),
    [
        ("stale cache", [user("a stale cache"), user("the cache is stale"), user("cache")], [1]),
        ("common rare", [user("common"), user("rare"), user("common"), user("common")], [2]),
        ("x1", [user("x1")] * 3, [3, 2, 1]),
        ("what is the color", [user("what is it, what is the"), user("color")], [2]),
        ("what is it", [user("what is it, what is the"), user("color")], [1]),
        (
            "hotel in Lisbon",
            [user("A walk."), says("A hotel, closed."), user("Ok."), user("To Lisbon?"), says("The Azulejo hotel.")],
            [4, 5],
        ),
        ("grey heron", [user("a heron that is grey"), user("grey " + "and so on " * 200 + " heron")], [1, 2]),
        ('heron "the grey one"', [user("grey heron grey heron, a heron"), user("heron, the grey one")], [2]),
        ("color of the heron", [call("a"), result("a", LONG_LOG), says("The color of the heron is grey.")], [3, 2]),
    ],
)
def test_what_says_more_of_the_query_comes_first(query: str, messages: list[Message], seqs: list[int]) -> None:
    assert found(query, *messages)[: len(seqs)] == seqs
    assert found(query, *messages, limit=1) == seqs[:1]
    assert found(query, *messages, limit=0) == []


@pytest.mark.parametrize(
    ("text", "queries", "not_found"),
    [
        ("stop the parsing of a café: parser", ["stopped parsers", "cafe"], []),
        ("a budget of a user, see configuration", ["what isn't the user's budget?", "conf"], []),
        ("cancelled tries, stories", ["cancellation", "canceled", "cancelling", "cancels", "tried", "story"], []),
        ("the loader has a file", ["loader/cache.txt"], []),
        ("Look at src/auth/login.py please", ["src/auth/login.py", "login.py", "auth/login", "auth", "src/auth"], []),
        ("set user_id_42 to 7", ["user_id_42", "user_id", "42", "id_42"], []),
        ("call foo::bar(baz) and a@b.example", ["foo::bar", "baz", "a@b.example", "b.example"], []),
        ("请检查登录模块的错误", ["登录", "登录模块", "错误", "误"], ["登模", "录登"]),
        ("로그인 모듈을 고쳐 주세요", ["로그인", "모듈", "고쳐"], ["인로"]),
        ("エラー404 in 登录.py", ["エラー404", "404", "登录.py", "登录"], ["ーエ"]),
        ("ﾃｽﾄ 𠮷野家", ["ﾃｽﾄ", "𠮷野"], ["野𠮷"]),
    ],
)
def test_a_text_is_found_by_forms_and_parts_of_its_words_and_without_spaces_by_any_run_of_characters(
    text: str, queries: list[str], not_found: list[str]
) -> None:
    for query in queries:
        assert found(query, user("before"), user(text), user("after")) == [2], query
    for query in not_found:
        assert found(query, user("before"), user(text), user("after")) == [], query


def test_a_part_of_an_identifier_is_found_if_nothing_else_has_it_and_words_and_numbers_have_none() -> None:
    messages = [user("a plain reusernamed word"), user("call getUserName of a49f31bc"), user("nothing")]
    for part in ("username", "UserName", "tUserNa", "user_name", "49f31", "9F31BC"):
        assert found(part, *messages) == [2]
        assert found(part, *messages, user(f"here is {part} itself")) == [4]
    for text in ("unhealthyness", "UPPERCASED", "Capitalized", "123456789", "getA", "用户希望保留原始"):
        assert names(text) == ""


SPEAKERS = [
    ("what did I say about herons", user("grey herons"), says("white herons")),
    ("herons: what did you tell me?", says("white herons"), user("grey herons")),
    ("小明说了什么关于白鹭", user("小明\uff1a一只白鹭。"), user("王芳\uff1a小明有一只白鹭。")),
    ("小明的白鹭", user("[5月8日] 小明: 一只白鹭。"), user("王芳\uff1a小明有一只白鹭。")),
    ("what did Nora say of herons to Felix", user("Nora: a heron"), user("Felix: a heron")),
    ("Nora's herons", user("[8 May] Nora said, a heron"), user("[9 May] Felix said, a heron")),
    ("Nora's herons", user("a heron", name="@nora-2"), user("a heron", name="Felix")),
    ("what did Nora say of herons", user("a heron", name="Nora Smith"), user("a heron")),
]


@pytest.mark.parametrize(("query", "wanted", "other"), SPEAKERS, ids=str)
def test_the_message_of_the_speaker_that_is_asked_for_comes_first(query: str, wanted: Message, other: Message) -> None:
    assert found(query, wanted, other)[0] == 1
    assert found(query, other, wanted, user("well"))[0] == 2


def test_the_message_of_the_day_that_is_asked_for_comes_first() -> None:
    days = ("2026-05-03", "2026-05-04", "2025-05-03")
    entries = transcript([user("a heron")] * 3).snapshot()
    history = [one._replace(created=f"{day}T10:00:00.000+00:00") for one, day in zip(entries, days, strict=True)]
    queries = {"the heron on May 4th": 2, "the heron on 3 May 2026": 1, "heron 2025-05": 3}
    for query, first in queries.items():
        assert ScanIndex().search(history, query, 1) == [history[first - 1]]


def test_the_line_with_a_form_of_the_word_is_better_than_one_with_some_of_its_letters() -> None:
    for query, line in (("tried", "we try it"), ("cafe", "the café is closed"), ("=>", "a => b")):
        assert excerpts(["a string of trivia", line, "a calf = b"], words_of(query), 1) == [(2, line)]


TEXTS = "a\u03a3\u03c3\u0391é\u0301e\u0327 \n.'\u2019漢字かが\u3099\uff8a\uff9f각\u1100\u1161\u11a8ÅİßÀ\u0345B1_/"


@pytest.mark.parametrize("read", [fold, names])
@given(text=st.text(TEXTS, max_size=60))
def test_a_long_text_is_read_in_parts_as_it_is_at_once(read: Callable[[str], str], text: str) -> None:
    text = f"{text} getUserName"
    at_once = read(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(query_module, "READ_AT_ONCE", 4)
        assert read(text) == at_once


@pytest.mark.parametrize(("read", "words"), [(fold, "où il a été "), (names, "the state ")])
def test_other_threads_run_while_a_text_of_megabytes_is_read(read: Callable[[str], str], words: str) -> None:
    text = words * 600_000
    assert any(longest_wait_beside(lambda: read(text)) < 0.35 for _ in range(3))  # 0.7 to 1.0 in one call


@given(st.text(alphabet="abdegilnorsty", min_size=1, max_size=12))
@example("need needle")
@example("nation native")
@example("try tree")
@example("lattes later")
def test_each_word_begins_with_its_root_and_other_words_are_no_forms(words: str) -> None:
    one, *others = words.split()
    assert root(one)
    assert one.startswith(root(one))
    for other in others:
        assert found(one, user(f"an {other}"), user(f"an {one}"))[0] == 2
        assert root(one) != root(other)


PATHS = " ".join("a/" * (number % 9 + 2) + f"b{number}" for number in range(80))


@pytest.mark.parametrize("query", ["a/" * 1_500, PATHS, "aA1" * 1_300, "登录/a/" * 500])
def test_of_the_paths_of_a_query_a_bounded_number_of_words_is_compared(query: str) -> None:
    """An index compares each word of a phrase at every place of a text that repeats them."""
    terms = Query(query).terms
    phrases = [term for term in terms if len(term.parts) > 1 and not term.unspaced]
    assert sum(len(term.parts) for term in phrases) <= 48
    choices = [one for term in terms for choice in term.choices for one in choice]
    assert all(len("".join(one.parts)) <= 64 for one in choices if one.is_inside)
    assert len(choices) <= 4 * 48 + 48


def test_a_scan_compares_a_path_once_with_a_text_that_repeats_its_words() -> None:
    """A pattern begins at each word; 100,000 words took a pattern of 48 words half a second, and it kept the GIL."""
    history = transcript([user("a/" * 40_000 + "c/b")]).snapshot()

    def took(words: int) -> float:
        start = time.thread_time()
        ScanIndex().search(history, "a/" * words + "b", 1)
        return time.thread_time() - start

    assert min(took(46) for _ in range(3)) < 6 * min(took(2) for _ in range(3))


# -- what a question says of its answer --------------------------------------------------------------------------------
def test_a_question_names_days_and_months() -> None:
    asked = "on the 13th of October, 2023, in August 2023, may I ask 3 things since 2026-05-07\u4f60 on \u017fep 3"
    dates = [tuple(date) for date in asked_dates(asked)]
    assert sorted(dates) == [("2023", "08", ""), ("2023", "10", "13"), ("2026", "05", "07")]
    assert not asked_dates("\u0662\u0660\u0662\u0666-\u0660\u0665"), "digits, but not those of a time"


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    assert asked_role(text) in (None, "user", "assistant")
    assert all(date.month.isdigit() for date in asked_dates(text))
    assert len(speaker_label(text)) <= len(text)
