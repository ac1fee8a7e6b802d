"""Thinking that is bound, provider compactions, and all else that a view must be whatever hosts and providers send."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.messages.usage import Response, Usage
from tests.managers import ToolHost, ask, feed, new_manager
from tests.messages import SIGNED, Message, block, carrier, digest, rounds, says, size, system, text, user, work

BUDGET = 4_000


async def test_a_view_begins_with_instructions_alone_or_before_a_person_or_a_constant_line() -> None:
    manager = await feed(new_manager(), [system()])
    assert await manager.get_messages_for_request(BUDGET) == [system()]
    greetings = ("Welcome!", "Good day!")
    views = [await ask(await feed(new_manager(), [says(one), user("Hi.")]), BUDGET) for one in greetings]
    assert views[0][0]["role"] == "user"
    assert views[0][0] == views[1][0]
    hidden = user("x", metadata={"amplifier_public_reference_only": True})
    hook = {"role": "developer", "content": "A rule.", "metadata": {"source": "hook"}}
    manager = await feed(new_manager(), [hidden, hook])
    before = await manager.get_messages_for_request(BUDGET)
    await feed(manager, [says("I begin.")])
    view = await ask(manager, BUDGET)
    assert [message["role"] for message in view] == ["developer", "user", "assistant"]
    assert view[: len(before)] == before


@pytest.mark.parametrize("auto", [True, False])
async def test_a_compaction_comes_at_the_threshold_else_at_the_hard_limit_and_goes_down_to_the_target(
    auto: bool,
) -> None:
    manager = await feed(new_manager(compact_threshold=0.6, target_usage=0.3, auto_compact=auto), [user("Work.")])
    sizes: list[int] = []
    while not manager.compactor.compactions:
        await feed(manager, rounds(1, start=len(sizes)))
        sizes.append(size(await ask(manager, BUDGET)))
    assert max(sizes) <= 0.6 * BUDGET if auto else max(sizes) > 0.95 * BUDGET
    assert sizes[-1] <= 0.3 * BUDGET + 200


async def test_an_imported_giant_is_folded_and_every_round_is_accounted_for() -> None:
    messages = work(2_000)
    messages[800:800] = [user("Never touch auth.py.")]
    manager = new_manager()
    await manager.set_messages(messages)
    view = await ask(manager, BUDGET)
    assert " rounds left out]" in text(view)
    report = await manager.explain()
    assert report["compactions"] == 1
    spans = [(int(row["mark"][1:]), int(row["to"][1:])) for row in report["rounds"] if row["state"] != "dropped"]
    assert all(any(first <= seq <= last for first, last in spans) for seq in range(1, len(messages) + 1))


@pytest.mark.parametrize("known", ["by its metadata", "by its event"])
async def test_signed_thinking_goes_when_the_provider_changes_and_comes_back_with_it(known: str) -> None:
    one, other = SimpleNamespace(name="anthropic"), SimpleNamespace(name="openai")
    manager = await feed(new_manager(), [user("Well?")])
    await ask(manager, None, one)
    answer = says([SIGNED, block("Yes.")])
    if known == "by its event":
        manager.on_response(Response("c-1", "anthropic", None, "stop"))
    else:
        answer["metadata"] = {"model": "c-1", "provider": "anthropic"}
    await feed(manager, [answer, user("Sure?")])
    assert (await ask(manager, None, other))[1]["content"] == [block("Yes.")]
    assert SIGNED["signature"] in text(await ask(manager, None, one))


async def test_a_stored_timestamp_never_changes_and_is_never_sent() -> None:
    top = {"role": "user", "content": "Hi.", "timestamp": "2024-02-29T12:00:00.000+00:00"}
    manager = await feed(new_manager(), [*work(40), top])
    *stored, last = await manager.get_messages()
    assert (last, manager.snapshot()[-1].created) == (top, top["timestamp"])
    before = [message["metadata"]["timestamp"] for message in stored]
    assert "timestamp" not in text(await ask(manager, 2_000))
    for message in stored:
        message["metadata"]["timestamp"] = "2031-01-01T00:00:00.000+00:00"
    await manager.set_messages([*stored, last])
    await manager.compact()
    assert [message["metadata"]["timestamp"] for message in (await manager.get_messages())[:-1]] == before


async def test_the_factorys_prompt_replaces_stored_ones_except_a_hooks_and_another_changes_its_own_bytes_only() -> None:
    prompt = "Made."

    async def factory() -> str:
        return prompt

    manager = await feed(new_manager(), [system(), system("From a hook.", metadata={"source": "hook"}), *work(60)])
    await manager.set_system_prompt_factory(factory)
    before = await ask(manager, BUDGET)
    assert digest(await ask(manager, BUDGET)) == digest(before)
    assert [m["content"] for m in before if m["role"] == "system"] == ["Made.", "From a hook."]
    prompt = "Two."
    after = await ask(manager, BUDGET)
    assert (after[0]["content"], digest(after[1:])) == ("Two.", digest(before[1:]))
    assert (await manager.explain())["compactions"] == 1
    for nothing in ("", "  \n"):  # no empty message takes its place
        prompt = nothing
        assert [m["content"] for m in await ask(manager, BUDGET) if m["role"] == "system"] == ["From a hook."]


@pytest.mark.parametrize("which", [0, 5, -1], ids=["first", "middle", "last"])
async def test_a_round_pinned_out_of_a_chapter_leaves_it_and_compactions_go_on(which: int) -> None:
    manager = await feed(new_manager(), work(60))
    await ask(manager, BUDGET)
    chapter = next(segment.chapter for segment in manager.compactor.last_sent.view.segments() if segment.chapter)
    seq = chapter.entries[which].first
    await manager.pin(f"m{seq}")
    view = await ask(await feed(manager, rounds(60, start=100)), BUDGET)
    assert any(message.get("tool_calls") and f"call_{(seq - 2) // 2}" in text([message]) for message in view)
    report = await manager.explain()
    assert len([row for row in report["rounds"] if int(row["mark"][1:]) <= seq <= int(row["to"][1:])]) == 1
    assert not [row for row in report["rounds"] if row["state"] == "dropped"]
    await manager.pin(f"m{seq}", pinned=False)
    compactions = manager.compactor.compactions
    await ask(await feed(manager, rounds(60, start=200)), BUDGET)
    assert manager.compactor.compactions > compactions
    assert manager.warnings.texts == [], "no strategy was skipped"


async def test_a_child_starts_from_its_parents_checkpoint_if_its_history_begins_as_the_parents() -> None:
    parent = await feed(new_manager(session_id="parent"), work(80))
    before = await ask(parent, BUDGET)
    assert int((await parent.explain())["view"]["checkpoint"][1:]) > 100
    messages = await parent.get_messages()
    for first, compactions in ((messages[0]["content"], 0), ("Do something else.", 1)):
        messages[0]["content"] = first
        child = new_manager(session_id=f"child-{compactions}")
        await child.set_messages(messages)
        view = await ask(child, BUDGET)
        assert (text(view) == text(before), view[0]["content"]) == (not compactions, first)
        assert (await child.explain())["compactions"] == compactions


@pytest.mark.parametrize(
    "register",
    [
        lambda manager: manager.compact_summary("call_3", "PRIVATE"),
        lambda manager: manager.pin("m5"),
        lambda manager: manager.compact("PRIVATE"),
    ],
    ids=["short form", "pin", "focus"],
)
async def test_what_one_session_registered_shows_in_no_other_with_the_same_messages(
    register: Callable[[ContextManager], Awaitable[Any]],
) -> None:
    stamp = {"timestamp": "2026-01-01T00:00:00.000+00:00"}
    messages = [{**message, "metadata": stamp} for message in work(40, output=1_000)]
    first, second = new_manager(session_id="a"), new_manager(session_id="b")
    await first.set_messages(messages)
    await register(first)
    await ask(first, BUDGET)
    assert first.compactor.compactions
    await second.set_messages(messages)
    assert "PRIVATE" not in text(await ask(second, BUDGET))
    assert second.compactor.compactions  # nothing was taken over


BOUND = SimpleNamespace(name="anthropic", default_model="claude-opus-5-5")
FREE = SimpleNamespace(name="openai", default_model="gpt-5.6")
LARGE = 100_000


def answer(number: int) -> Message:
    thought = {"type": "thinking", "thinking": f"hm {number}", "signature": f"sig-{number}"}
    return says([thought, block(f"Step {number}.")])


async def talk(session: ContextManager, numbers: range, provider: Any = BOUND, budget: int = LARGE) -> None:
    """Turns of a question and an answer with thinking."""
    for number in numbers:
        await session.add_message(user(f"Question {number}. " + "word " * 20))
        await session.get_messages_for_request(budget, provider)
        await session.add_message(answer(number))


async def seen(session: ContextManager, provider: Any = BOUND) -> list[str]:
    """The signatures that a request shows now, in order."""
    view = await session.get_messages_for_request(LARGE, provider)
    contents = [message["content"] for message in view if isinstance(message["content"], list)]
    return [one["signature"] for content in contents for one in content if one["type"] == "thinking"]


def names(*numbers: int) -> list[str]:
    return [f"sig-{number}" for number in numbers]


async def test_another_system_prompt_is_an_edit_and_the_first_one_shows_the_first_thinking_again() -> None:
    prompt = "You are the first."

    async def factory() -> str:
        return prompt

    session = new_manager()
    await session.set_system_prompt_factory(factory)
    await talk(session, range(1, 3))
    prompt = "You are the second."
    assert await seen(session) == []
    await talk(session, range(3, 4))
    assert await seen(session) == names(3)
    prompt = "You are the first."
    assert await seen(session) == names(1, 2)


@pytest.mark.parametrize("trace", [True, False])
async def test_no_hash_of_a_request_that_held_an_erased_text_is_kept(trace: bool) -> None:
    async def hashed() -> list[int]:
        """Entries that answer a request whose hash is stored."""
        stored = await session.store.read(session.session_id)
        return [entry.seq for entry in stored if entry.response and entry.response.prefix]

    session = new_manager()
    await talk(session, range(1, 5))
    assert await hashed() == [2, 4, 6, 8]
    await session.forget(["m3"], trace=trace)
    assert await hashed() == [2]
    await talk(session, range(5, 6))
    assert await seen(session) == names(1, 5)
    assert await hashed() == [2, 10]


async def test_the_model_that_wrote_an_answer_counts_where_a_request_names_none() -> None:
    session = new_manager()
    message = answer(1)
    message["metadata"] = {"model": "gpt-5.6", "provider": "openai"}
    await session.set_messages([user("Well?"), message, user("Sure?")])
    assert await seen(session, None) == names(1)


async def test_the_usage_of_an_answer_teaches_the_meter_about_its_own_request_only() -> None:
    session = await feed(new_manager(), [user("word " * 300)])
    await session.get_messages_for_request(LARGE, FREE)
    sent = session.compactor.last_sent
    session.on_request()
    await session.get_messages_for_request(LARGE, SimpleNamespace(name="gemini", default_model="gemini-2.5-pro"))
    session.on_response(Response("gpt-5.6", "openai", Usage(sent.counted * 2)))
    await session.add_message(says())
    assert list(session.session.meter.corrections) == [sent.key]


async def test_an_answer_whose_provider_declares_binding_is_bound_and_a_tool_without_description_ends_no_request() -> (
    None
):
    session = await feed(new_manager(), [user("Well?")])
    await session.get_messages_for_request(LARGE, FREE)
    await session.add_message(answer(1) | {"metadata": {"anthropic": {"thinking_binding": "drop_block"}}})
    assert await seen(session, FREE) == names(1)

    class Odd:
        input_schema: Any = object()

        @property
        def description(self) -> str:
            raise RuntimeError("no description")

    session.requests.host = ToolHost(lambda: {"odd": Odd()})
    assert await seen(session, FREE) == []


@pytest.mark.parametrize("fails", ["the provider reports it", "the person goes on"])
async def test_after_a_request_without_an_answer_the_next_one_is_answered(fails: str) -> None:
    session = new_manager()
    await talk(session, range(1, 4))
    await session.add_message(user("Go on."))
    await session.get_messages_for_request(LARGE, BOUND)
    session.on_request()
    if fails == "the provider reports it":
        session.on_failed_request()
        await session.compact()
    else:
        await session.add_message(user("No, stop."))
    await session.get_messages_for_request(LARGE, BOUND)
    await session.add_message(answer(4))
    assert (await seen(session))[-1:] == names(4)


READER = SimpleNamespace(name="anthropic", default_model="claude-opus-5")


async def test_without_originals_of_a_carrier_another_model_gets_the_words_in_it() -> None:
    carried = carrier("We read ten files.")
    manager = await feed(new_manager(), [carried, user("Go on.")])
    view = await manager.get_messages_for_request(3_000, FREE)
    assert "We read ten files." in view[0]["content"]
    assert "anthropic:compaction" not in view[0]["metadata"]
    assert (await manager.get_messages_for_request(3_000, READER))[0] == carried
