"""The system prompt of a view: a factory's or the stored one, counted, and outside the checkpoint."""

from __future__ import annotations

import pytest

from amplifier_context_core import ContextError
from tests.managers import ask, feed, new_manager
from tests.messages import Message, digest, work

BUDGET = 4_000


class Prompt:
    """A factory that counts its calls."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        return self.text


def stored_prompts() -> list[Message]:
    return [
        {"role": "system", "content": "Stored."},
        {"role": "system", "content": "From a hook.", "metadata": {"source": "hook"}},
        *work(3),
    ]


async def test_the_factorys_prompt_replaces_stored_ones_except_a_hooks() -> None:
    manager = await feed(new_manager(), stored_prompts())
    await manager.set_system_prompt_factory(Prompt("Made again."))
    view = await ask(manager, BUDGET)
    assert [m["content"] for m in view if m["role"] == "system"] == ["Made again.", "From a hook."]
    assert [m["role"] for m in view[:3]] == ["system", "system", "user"]


async def test_an_unchanged_prompt_stays_byte_identical_and_a_changed_one_costs_its_own_bytes_only() -> None:
    manager = await feed(new_manager(), work(60))
    prompt = Prompt("One.")
    await manager.set_system_prompt_factory(prompt)
    before = await ask(manager, BUDGET)
    assert digest(await ask(manager, BUDGET)) == digest(before)
    prompt.text = "Two."
    after = await ask(manager, BUDGET)
    assert after[0]["content"] == "Two."
    assert digest(after[1:]) == digest(before[1:])
    assert (await manager.explain())["compactions"] == 1


async def test_a_factory_that_gives_nothing_leaves_no_empty_message() -> None:
    manager = await feed(new_manager(), work(1))
    for nothing in ("", "  \n"):
        await manager.set_system_prompt_factory(Prompt(nothing))
        assert (await ask(manager, BUDGET))[0]["role"] == "user"


async def test_a_factory_that_raises_is_an_error_of_ours_and_changes_nothing() -> None:
    async def broken() -> str:
        raise RuntimeError("secret")

    manager = await feed(new_manager(), work(1))
    await manager.set_system_prompt_factory(broken)
    with pytest.raises(ContextError, match="system prompt factory failed: RuntimeError"):
        await manager.get_messages_for_request(BUDGET)
    await manager.set_system_prompt_factory(None)
    await ask(manager, BUDGET)
