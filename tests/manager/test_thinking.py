"""Thinking that is bound to its prefix, and a provider's own compactions, in views of a session whose models change."""

from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.messages.usage import Response, Usage
from tests.managers import feed, new_manager
from tests.messages import Message, block, says, user

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
    assert sent is not None
    session.on_request()
    await session.get_messages_for_request(LARGE, SimpleNamespace(name="gemini", default_model="gemini-2.5-pro"))
    session.on_response(Response("gpt-5.6", "openai", Usage(sent.counted * 2)))
    await session.add_message(says())
    assert list(session.session.meter.corrections) == [sent.key]


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
BUDGET = 3_000


def carrier() -> Message:
    block = {"type": "compaction", "content": "We read ten files.", "signature": "c2ln"}
    state = {"version": 1, "model": "claude-opus-5", "block": block}
    marks = {"ephemeral": True, "persisted": True, "source": "context-managed", "anthropic:compaction": state}
    return {"role": "user", "content": "Native compacted conversation.", "metadata": marks}


async def test_without_originals_another_model_gets_the_words_in_it() -> None:
    manager = await feed(new_manager(), [carrier(), user("Go on.")])
    view = await manager.get_messages_for_request(BUDGET, FREE)
    assert "We read ten files." in view[0]["content"]
    assert "anthropic:compaction" not in view[0]["metadata"]
    assert (await manager.get_messages_for_request(BUDGET, READER))[0] == carrier()
