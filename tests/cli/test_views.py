"""The commands `view`, `explain` and `search` on a stored session that was compacted."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import open_store
from tests.cli.kept import keep, run_at, viewed
from tests.managers import ask, feed
from tests.messages import rounds, says, work


async def kept(url: str) -> tuple[ContextManager, str]:
    store = open_store(url, durability="none")
    manager = ContextManager(load_config({"max_tokens": 6_000}), session_id="one", store=store)
    for message in work(30, output=1_500):
        await feed(manager, [message])
        if message["role"] == "tool":
            await ask(manager)
    await manager.close()
    reopened = ContextManager(load_config({"max_tokens": 6_000}), session_id="one", store=store)
    shown = json.dumps(await ask(reopened))
    await reopened.close()
    return reopened, shown


def test_view_prints_what_the_next_request_would_show(url: str) -> None:
    _, shown = asyncio.run(kept(url))
    assert json.dumps(viewed(url, "one")) == shown
    text = run_at(url, "view", "one")
    marks = [json.loads(line)["mark"] or "-" for line in run_at(url, "view", "one", "--json").splitlines()]
    assert marks == [line.split()[0] for line in text.splitlines()[: len(marks)]]
    assert "m1 user" in text
    assert "--chapter m" in text


def test_a_chapter_is_printed_word_for_word_by_any_mark_in_it(url: str) -> None:
    manager, _ = asyncio.run(kept(url))
    (chapter, *_) = asyncio.run(manager.chapters())
    for mark in (chapter["mark"], chapter["to"]):
        assert run_at(url, "view", "one", "--chapter", mark).strip() == chapter["text"]
    assert "no chapter of the view has m999" in run_at(url, "view", "one", "--chapter", "m999", fails=True)
    assert "--chapter" in run_at(url, "view", "one", "--chapter", "x", fails=True)


def test_context_says_how_full_the_window_is(url: str) -> None:
    manager, _ = asyncio.run(kept(url))
    usage = json.loads(run_at(url, "context", "one", "--json"))
    expected = asyncio.run(manager.usage())
    assert usage.pop("spent") == []
    assert {**usage, "reported": None} == {**expected, "reported": None}
    short = run_at(url, "context", "one", "--short")
    assert short == f"{usage['used']:,} of 6,000 tokens" + short.partition(" tokens")[2]
    rows = run_at(url, "context", "one").split("\n")
    assert rows[0] == short.strip()
    assert [row.split()[0] for row in rows[1:8]] == [*usage["kinds"], "free"]
    larger = json.loads(run_at(url, "context", "one", "--budget", "20k", "--json"))
    assert larger["size"] == 20_000


def test_explain_says_what_became_of_each_round_on_a_narrow_screen_too(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(kept(url))
    monkeypatch.setenv("COLUMNS", "70")
    text = run_at(url, "explain", "one")
    assert max(map(len, text.splitlines())) <= 70
    facts = " ".join(text.split())
    assert all(fact in facts for fact in ("compacted above", "must stay: m1 (task), ", " tokens saved; chapters have "))
    assert "of 6,000 tokens" in text
    assert "folded" in text
    report = json.loads(run_at(url, "explain", "one", "--json"))
    assert {row["state"] for row in report["rounds"]} >= {"folded", "kept"}


async def of_short_rounds(url: str) -> None:
    manager = ContextManager(load_config({"max_tokens": 2_000}), session_id="one", store=open_store(url))
    for number in range(120):
        await feed(manager, [{"role": "user", "content": f"step_{number}?"}, *rounds(1, start=number, output=4)])
        await ask(manager)
    await manager.close()


def test_explain_says_why_a_folded_round_may_have_more_tokens_than_before(url: str) -> None:
    why = "of a short round the line may be longer than the round was"
    asyncio.run(of_short_rounds(url))
    text = run_at(url, "explain", "one")
    sizes = [
        [int(size.replace(",", "")) for size in found] for found in re.findall(r"folded +([\d,]+) → +([\d,]+)", text)
    ]
    assert any(after > before for before, after in sizes)
    assert why in " ".join(text.split())


def test_search_finds_messages_that_the_view_does_not_show(url: str) -> None:
    asyncio.run(kept(url))
    assert "m7 tool" in run_at(url, "search", "one", "line_2")
    hits = [json.loads(line) for line in run_at(url, "search", "one", "line_2", "--limit", "3", "--json").splitlines()]
    assert hits[0]["mark"] == "m7"
    assert "has no message with" in run_at(url, "search", "one", "nowhere_at_all")


def test_search_prints_the_line_that_matches_best_around_its_match(url: str) -> None:
    keep(
        url, "one", ["the 7 of us\nlook at\nthe turbo encabulator, number 7\nand go", f"{'x' * 900} heron, {'y' * 900}"]
    )
    assert "m1 user       the turbo encabulator, number 7" in run_at(url, "search", "one", "encabulator number 7")
    assert "the turbo encabulator" in run_at(url, "search", "one", '"turbo encabulator"', "us")
    assert " heron, " in run_at(url, "search", "one", "heron?")


def test_looking_at_a_session_changes_nothing(url: str) -> None:
    async def stored() -> tuple[object, object]:
        store = open_store(url, durability="none")
        found = (await store.read("one", 0, 10_000), await store.load_checkpoint("one"))
        await store.close()
        return found

    asyncio.run(kept(url))
    before = asyncio.run(stored())
    run_at(url, "view", "one")
    run_at(url, "explain", "one", "--budget", "2000")
    run_at(url, "search", "one", "line_2")
    assert asyncio.run(stored()) == before


def test_with_a_budget_the_view_is_what_would_be_sent(url: str) -> None:
    async def sent() -> list[dict[str, object]]:
        store = open_store(url, durability="none")
        manager = ContextManager(load_config({"max_tokens": 2_000}), session_id="one", store=store)
        view = await ask(manager)
        await manager.close()
        return view

    asyncio.run(kept(url))
    small = viewed(url, "one", "--budget", "2k")
    report = json.loads(run_at(url, "explain", "one", "--budget", "2,000", "--json"))
    assert len(small) < len(viewed(url, "one"))
    assert report["view"]["tokens"] <= report["view"]["budget"] == 2_000
    assert small == asyncio.run(sent())
    assert "'lots' is not a number of tokens" in run_at(url, "view", "one", "--budget", "lots", fails=True)


def test_commands_use_the_settings_of_the_session(url: str) -> None:
    sizes = {"max_tokens": 6_000, "compact_threshold": 0.7, "target_usage": 0.3}
    settings = {**sizes, "token_counter": "heuristic", "merge_consecutive": True}

    async def made() -> tuple[str, int, object]:
        store = open_store(url, durability="none")
        manager = ContextManager(load_config(settings), session_id="one", store=store)
        for message in work(30, output=1_500):
            await feed(manager, [message])
            if message["role"] == "tool":
                await ask(manager)
        await feed(manager, [{"role": "user", "content": "Stop."}, {"role": "user", "content": "Go on."}])
        await manager.close()
        reopened = ContextManager(load_config(settings), session_id="one", store=store)
        shown, report = json.dumps(await ask(reopened)), await reopened.explain()
        await reopened.close()
        return shown, report["view"]["tokens"], report["view"]["why"]

    shown, tokens, threshold = asyncio.run(made())
    assert json.dumps(viewed(url, "one")) == shown
    report = json.loads(run_at(url, "explain", "one", "--json"))
    assert report["view"]["tokens"] == tokens
    assert report["view"]["why"] == threshold


def test_all_sessions_are_searched_and_one_that_cannot_be_read_is_named(filled: str) -> None:
    found = [
        json.loads(line) for line in run_at(filled, "search", "--all", "file", "--json", "--limit", "2").splitlines()
    ]
    assert {one["session_id"] for one in found} == {"one", "two"}
    assert len(found) == 4
    printed = run_at(filled, "search", "--all", "file")
    assert any(line.startswith("one m") for line in printed.splitlines())
    assert "no session of" in run_at(filled, "search", "--all", "zyzzyva")
    assert "name a session and words" in run_at(filled, "search", "one", fails=True)


def test_context_sums_tokens_by_model_and_money_where_each_answer_states_it(url: str) -> None:
    usage = {"input_tokens": 1_000, "output_tokens": 10, "cache_read_tokens": 800}
    answers = [
        says("Yes.") | {"metadata": {"model": model, "usage": {**usage, "cost_usd": cost}}}
        for model, cost in (("a", "0.10"), ("a", "0.047"), ("b", "0.1"), ("b", None))
    ]
    keep(url, "one", [*work(1), *answers])
    spent = json.loads(run_at(url, "context", "one", "--json"))["spent"]
    assert [(one["model"], one["answers"], one["input_tokens"], one["cost_usd"]) for one in spent] == [
        ("a", 2, 2_000, "0.147"),
        ("b", 2, 2_000, None),
    ]
    shown = " ".join(run_at(url, "context", "one").split())
    tokens = "2 answers, 2,000 input tokens (80% read from the cache), 20 output"
    assert f"so far, a: {tokens}, 0.15 USD so far, b: {tokens}" in shown
    assert not shown.endswith("USD")
