"""What a stored session shows, and the commands that change it: compactions, pins, undo."""

from typing import Any

import pytest

from amplifier_context_core import ContextManager, Store
from tests.cli.kept import Message, in_session, in_store, keep, rows, run, viewed
from tests.managers import ask, feed
from tests.messages import says, user, work


def grow(url: str, more: list[Message] | None = None, **config: Any) -> None:
    """Keep a session that was compacted several times."""

    async def fill(manager: ContextManager) -> None:
        for message in work(30, output=1_500):
            await feed(manager, [message])
            if message["role"] == "tool":
                await ask(manager)
        await feed(manager, more or [])

    in_session(url, fill, **config)


def test_what_shows_the_next_request_and_its_chapters_changes_nothing(url: str) -> None:
    async def stored(store: Store) -> tuple[object, object]:
        return await store.read("one", 0, 10_000), await store.load_checkpoint("one")

    grow(url)
    before = in_store(url, stored)
    shown = run("view", "one").output
    marks = [row["mark"] or "-" for row in rows("view", "one")]
    assert marks == [line.split()[0] for line in shown.splitlines()[: len(marks)]]
    assert " tokens saved; chapters have " in " ".join(run("explain", "one", "--budget", "6000").output.split())
    small = viewed("one", "--budget", "2k")
    assert in_store(url, stored) == before
    assert len(small) < len(viewed("one"))
    assert viewed("one") == in_session(url, ask)
    (chapter, *_) = in_session(url, ContextManager.chapters)
    for mark in (chapter["mark"], chapter["to"]):
        assert run("view", "one", "--chapter", mark).output.strip() == chapter["text"]
    run("view", "one", "--chapter", "m999", code=1)
    run("view", "one", "--chapter", "x", code=2)
    assert small == in_session(url, ask, max_tokens=2_000)
    run("view", "one", "--budget", "lots", code=2)


def test_context_says_how_full_the_window_is(url: str) -> None:
    grow(url)
    (usage,) = rows("context", "one")
    assert usage.pop("spent") == []
    assert {**usage, "reported": None} == {**in_session(url, ContextManager.usage), "reported": None}
    short = run("context", "one", "--short").output
    assert short == f"{usage['used']:,} of 6,000 tokens" + short.partition(" tokens")[2]
    lines = run("context", "one").output.split("\n")
    assert lines[0] == short.strip()
    assert [line.split()[0] for line in lines[1:8]] == [*usage["kinds"], "free"]
    assert rows("context", "one", "--budget", "20k")[0]["size"] == 20_000


def test_context_sums_tokens_by_model_and_money_where_each_answer_states_it(url: str) -> None:
    usage = {"input_tokens": 1_000, "output_tokens": 10, "cache_read_tokens": 800}
    answers = [
        says("Yes.", metadata={"model": model, "usage": {**usage, "cost_usd": cost}})
        for model, cost in (("a", "0.10"), ("a", "0.047"), ("b", "0.1"), ("b", None))
    ]
    keep(url, "one", [*work(1), *answers])
    spent = rows("context", "one")[0]["spent"]
    figures = [[one[key] for key in ("model", "answers", "input_tokens", "cost_usd")] for one in spent]
    assert figures == [["a", 2, 2_000, "0.147"], ["b", 2, 2_000, None]]


def test_one_session_or_all_are_searched(filled: str) -> None:
    assert len(rows("search", "one", "file", "--limit", "3")) == 3
    found = [one["session_id"] for one in rows("search", "--all", "file", "--limit", "2")]
    assert sorted(found) == ["one", "one", "two", "two"]
    assert "one m" in run("search", "--all", "file").output
    assert "no session of" in run("search", "--all", "zyzzyva").output
    assert "has no message with" in run("search", "one", "zyzzyva").output
    run("search", "one", code=2)


def test_commands_use_the_settings_of_the_session(url: str) -> None:
    settings = {"token_counter": "heuristic", "compact_threshold": 0.7, "target_usage": 0.3, "merge_consecutive": True}
    grow(url, [user("Stop."), user("Go on.")], **settings)
    shown = in_session(url, ask, **settings)
    report = in_session(url, ContextManager.explain, **settings)["view"]
    assert viewed("one") == shown
    (printed,) = rows("explain", "one")
    assert (printed["view"]["tokens"], printed["view"]["why"]) == (report["tokens"], report["why"])
    assert "its originals are shown again" in run("undo", "one", "--yes", "--budget", "64k").output


@pytest.fixture
def session(url: str) -> str:
    """A session with one request, which nothing was compacted for."""

    async def fill(manager: ContextManager) -> None:
        await ask(await feed(manager, work(30, output=1_500)))

    in_session(url, fill, max_tokens=20_000)
    return url


def test_a_dry_run_says_what_a_compaction_does_which_undo_takes_back(session: str) -> None:
    originals, (before,) = viewed("one"), rows("context", "one")
    (said,) = rows("compact", "one", "--dry-run")
    assert said["after_tokens"] < said["before_tokens"] == before["used"]
    assert "would be folded: " in run("compact", "one", "--dry-run").output
    (small,) = rows("compact", "one", "--dry-run", "--budget", "5k")
    assert small["after_tokens"] < 5_000 < small["before_tokens"]
    assert rows("context", "one") == [before]
    assert run("explain", "one", "--history").output == "one was not compacted\n"
    (done,) = rows("compact", "one")
    assert (done["before_tokens"], done["after_tokens"]) == (said["before_tokens"], said["after_tokens"])
    assert rows("context", "one")[0]["used"] == done["after_tokens"]
    (row,) = rows("explain", "one", "--history")
    assert (row["trigger"], row["after_tokens"]) == ("manual", done["after_tokens"])
    compacted = viewed("one")
    run("undo", "one", code=1)
    run("undo", "one", "--yes", "twelve", code=2)
    assert viewed("one") == compacted != originals
    assert "its originals are shown again" in run("undo", "one", "--yes").output
    assert viewed("one") == originals
    assert "nothing is folded" in run("undo", "one", "--yes", code=1).output


def test_only_what_is_between_the_marks_is_compacted_and_nothing_to_free_is_an_error(session: str) -> None:
    (done,) = rows("compact", "one", "--from", "m20", "--to", "m31")
    assert done["rounds"]
    assert all(20 <= int(row["mark"][1:]) <= 31 for row in done["rounds"])
    assert {f"m{seq}" for seq in range(1, 20)} <= {row["mark"] for row in rows("view", "one")}
    run("compact", "one", "--from", "20", code=2)
    keep(session, "two", work(1))
    assert "nothing could be freed" in run("compact", "two", code=1).output


def test_a_pin_keeps_a_round_through_a_compaction_until_it_is_taken_back(session: str) -> None:
    assert "m4 pinned" in run("pin", "one", "m4").output
    assert run("pins", "one").output.split()[0] == rows("pins", "one")[0]["mark"] == "m4"
    run("compact", "one")
    assert "m4" in {row["mark"] for row in rows("view", "one")}
    run("unpin", "one", "m4")
    assert run("pins", "one").output == "one has no pins\n"
    run("pin", "one", "m999", code=1)
    run("pin", "one", "4", code=1)
