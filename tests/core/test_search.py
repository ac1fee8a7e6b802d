"""Search: originals are found by the words in them, in any part of an entry."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.stores.word_index import WordIndex
from amplifier_context_core.transcript import query as query_module
from amplifier_context_core.transcript.query import Query, fold, names, root
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


def seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


HISTORY = (
    user("Fix the loader in src/loader.py."),
    call("a", name="read_file", path="src/loader.py"),
    result("a", "def load(cache): ..."),
    says([{"type": "thinking", "thinking": "secret_thought"}, block("The cache is stale.")]),
    user([{"type": "tool_result", "tool_call_id": "b", "output": {"order": "ORDER-7731"}}]),
    result("a", '{"stdout": "built\\nzebra_crossing\\n", "returncode": 0}'),
)


@pytest.mark.parametrize(
    ("query", "seqs"),
    [
        ("stale", [4]),
        ("STALE", [4]),
        ("src/loader.py", [2, 1]),
        ("read_file", [2]),
        ("ORDER-7731", [5]),
        ("zebra", [6]),  # not nzebra: the letter of an escape is none of the word
        ("cache", [4, 3]),
        ("nowhere", []),
        ("secret_thought", []),
        ("", []),
        ("  ?!,;  ", []),
    ],
)
def test_an_entry_is_found_by_what_it_says_calls_or_returns(query: str, seqs: list[int]) -> None:
    assert found(query, *HISTORY) == seqs


LONG_LOG = "\n".join(f"line {number} of the heron log" for number in range(3_000))


@pytest.mark.parametrize(
    ("query", "messages", "seqs"),
    [
        ("stale cache", [user("a stale cache"), user("the cache is stale"), user("cache")], [1]),
        ("common rare", [user("common"), user("rare"), user("common"), user("common")], [2]),
        ("x1", [user("x1")] * 3, [3, 2, 1]),
        ("see src/loader.py.", [user("src/loader.py has it")], [1]),
        ("what is the color", [user("what is it, what is the"), user("color")], [2]),
        ("what is it", [user("what is it, what is the"), user("color")], [1]),
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
    ("query", "text"),
    [
        ("which tests were failing", "The test fails here."),
        ("stopped parsers", "stop the parsing: parser"),
        ("cafe", "the café is closed"),
        ("conf", "see configuration"),
        ("我最喜欢的城市是哪里", "我喜欢的城市是厦门。"),
        ("loader/cache.txt", "the loader has a file"),
        ("what isn't the user's budget?", "a budget of a user"),
        ("cancellation", "the flight was cancelled"),
    ],
)
def test_other_forms_and_parts_of_words_are_found(query: str, text: str) -> None:
    assert found(query, user("before"), user(text), user("after")) == [2]


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        (
            "Look at src/auth/login.py please",
            ["src/auth/login.py", "login.py", "auth/login", "auth", "login", "src/auth"],
        ),
        ("set user_id_42 to 7", ["user_id_42", "user_id", "42", "id_42"]),
        ("call foo::bar(baz) and a@b.example", ["foo::bar", "baz", "a@b.example", "b.example"]),
    ],
)
def test_identifiers_are_found_by_the_whole_and_by_their_parts(text: str, queries: list[str]) -> None:
    for query in queries:
        assert found(query, user("before"), user(text), user("after")) == [2], query


@pytest.mark.parametrize(
    ("text", "queries", "not_found"),
    [
        ("请检查登录模块的错误", ["登录", "登录模块", "错误", "误"], ["登模", "录登"]),
        ("로그인 모듈을 고쳐 주세요", ["로그인", "모듈", "고쳐"], ["인로"]),
        ("エラー404 in 登录.py", ["エラー404", "404", "登录.py", "登录"], ["ーエ"]),
        ("ﾃｽﾄ 𠮷野家", ["ﾃｽﾄ", "𠮷野"], ["野𠮷"]),
    ],
)
def test_text_without_spaces_is_found_by_any_run_of_its_characters(
    text: str, queries: list[str], not_found: list[str]
) -> None:
    for query in queries:
        assert found(query, user("before"), user(text), user("after")) == [2], query
    for query in not_found:
        assert found(query, user("before"), user(text), user("after")) == [], query


def test_an_answer_next_to_its_question_comes_before_the_same_words_elsewhere() -> None:
    talk = [user("Which hotel in Lisbon?"), says("The Azulejo hotel."), user("Fine."), says("Well.")]
    other = [user("A walk."), says("That hotel was closed."), user("Go on."), says("Then.")]
    for history in (talk + other, other + talk):
        asked = next(at for at, one in enumerate(history, 1) if "Lisbon" in one["content"])
        assert found("hotel in Lisbon", *history)[:2] == [asked, asked + 1]


@pytest.mark.parametrize(("query", "first"), [("what did I say about herons", 1), ("herons: what did you tell me?", 2)])
def test_the_message_of_the_speaker_that_is_asked_for_comes_first(query: str, first: int) -> None:
    history = (user("grey herons"), says("white herons"), user("well"))
    assert found(query, *history)[0] == first
    assert found(query, *reversed(history))[0] == 4 - first


@pytest.mark.parametrize("query", ["what did Nora say of herons to Felix", "Nora's herons"])
def test_the_message_of_the_named_speaker_comes_first(query: str) -> None:
    for nora, felix in (
        ("Nora: a heron", "Felix: a heron"),
        ("[8 May] Nora said, a heron", "[9 May] Felix said, a heron"),
    ):
        assert found(query, user(nora), user(felix))[0] == 1
    for name in ("Nora", "Nora Smith", "nora_smith", "@nora-2"):
        assert found(query, {**user("a heron"), "name": name}, {**user("a heron"), "name": "Felix"})[0] == 1
    others = [user("a heron")] * 3  # of people whose name the host did not give
    assert found(query, {**user("a heron"), "name": "Nora"}, *others)[0] == 1


@pytest.mark.parametrize("query", ["小明说了什么关于白鹭", "小明的白鹭"])
@pytest.mark.parametrize("label", ["小明\uff1a", "小明说\uff1a", "[5月8日] 小明: "])
def test_a_name_in_chinese_is_that_of_a_speaker_too(query: str, label: str) -> None:
    history = (user(f"{label}一只白鹭。"), user("王芳\uff1a小明有一只白鹭。"))
    assert found(query, *history)[0] == 1
    assert found(query, *reversed(history))[0] == 2


@pytest.mark.parametrize("word", ["Note", "Error", "错误"])
def test_a_word_before_a_colon_is_no_speaker_where_messages_have_none(word: str) -> None:
    labelled = [user(f"{word}: a heron"), says(f"{word}: a heron"), result("a", f"{word}: a heron")]
    for one in labelled:
        for query in (f"what {word} about the heron", f"{word} heron"):
            others = [user(f"a heron, {word}"), says(f"a heron, {word}")]
            assert found(query, call("a"), one, *others)[:2] == [4, 3]


def test_the_message_of_the_day_that_is_asked_for_comes_first() -> None:
    days = ("2026-05-03", "2026-05-04", "2025-05-03")
    entries = transcript([user("a heron")] * 3).snapshot()
    history = [one._replace(created=f"{day}T10:00:00.000+00:00") for one, day in zip(entries, days, strict=True)]
    queries = {"the heron on May 4th": 2, "the heron on 3 May 2026": 1, "heron 2025-05": 3}
    for query, first in queries.items():
        assert ScanIndex().search(history, query, 1) == [history[first - 1]]


@pytest.mark.parametrize("part", ["username", "UserName", "tUserNa", "user_name", "49f31", "9F31BC"])
def test_a_part_of_an_identifier_is_found_if_nothing_else_has_it(part: str) -> None:
    messages = [user("a plain reusernamed word"), user("call getUserName of a49f31bc"), user("nothing")]
    assert found(part, *messages) == [2]
    assert found(part, *messages, user(f"here is {part} itself")) == [4]


@pytest.mark.parametrize(
    "text", ["unhealthyness", "UPPERCASED", "Capitalized", "123456789", "getA", "用户希望保留原始"]
)
def test_words_and_numbers_have_no_parts(text: str) -> None:
    assert names(text) == ""


@given(
    st.text(
        "a\u03a3\u03c3\u0391é\u0301e\u0327 \n.'\u2019漢字かが\u3099\uff8a\uff9f각\u1100\u1161\u11a8ÅİßÀ\u0345",
        max_size=60,
    )
)
def test_a_long_text_is_folded_in_parts_as_it_is_at_once(text: str) -> None:
    at_once = fold(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(query_module, "READ_AT_ONCE", 4)
        assert fold(text) == at_once


@given(st.text("aB1_ é.漢字/", max_size=60))
def test_the_identifiers_of_a_long_text_are_found_in_parts_as_at_once(text: str) -> None:
    at_once = names(f"{text} getUserName")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(query_module, "READ_AT_ONCE", 4)
        assert names(f"{text} getUserName") == at_once


@pytest.mark.parametrize(("read", "words"), [(fold, "où il a été "), (names, "the state ")])
def test_other_threads_run_while_a_text_of_megabytes_is_read(read: Callable[[str], str], words: str) -> None:
    text = words * 600_000
    assert any(longest_wait_beside(lambda: read(text)) < 0.35 for _ in range(3))  # 0.7 to 1.0 in one call


@pytest.mark.parametrize(
    "words",
    [
        "cancel cancels cancelled canceled cancelling cancellation",
        "story stories",
        "create created creating creation",
        "box boxes",
        "try tried tries",
        "spy spies",
    ],
)
def test_a_scan_finds_the_forms_of_a_word(words: str) -> None:
    for one in words.split():
        for other in words.split():
            history = transcript([user("before"), user(f"an {other}"), user("after")]).snapshot()
            assert ScanIndex().search(history, one, 5) == [history[1]], (one, other)


@pytest.mark.parametrize("words", ["need needle", "nation native", "try tree", "lattes later"])
def test_other_words_are_no_forms(words: str) -> None:
    one, other = words.split()
    assert found(one, user(f"an {other}"), user(f"an {one}"))[0] == 2
    assert root(one) != root(other)


@given(st.text(alphabet="abdegilnorsty", min_size=1, max_size=12))
def test_each_word_begins_with_its_root(word: str) -> None:
    assert root(word)
    assert word.startswith(root(word))


@pytest.mark.parametrize(
    "query",
    [
        "a/" * 1_500,
        " ".join("a/" * (number % 9 + 2) + f"b{number}" for number in range(80)),
        "aA1" * 1_300,
        "登录/a/" * 500,
    ],
)
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

    def took(words: int) -> float:
        return min(seconds(lambda: found("a/" * words + "b", user("a/" * 40_000 + "c/b"))) for _ in range(3))

    assert took(46) < 6 * took(2)
