"""Kept sessions, and a secret that one of them holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from click.testing import CliRunner, Result

from amplifier_context_cli.app import main
from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.stores import open_store
from amplifier_context_testing import coding_session

SECRET = "sk-live-4242-topsecret"
Run = Callable[..., Result]


async def fill(url: str, name: str, messages: int, seed: int) -> None:
    store = open_store(url, durability="flush")
    manager = ContextManager(
        load_config({"token_counter": "heuristic", "max_tokens": 8_000}), session_id=name, store=store
    )
    for number, message in enumerate(coding_session(messages, seed)):
        if number == 20:
            await manager.add_message({"role": "user", "content": f"the key is {SECRET}, \x1b[2J keep it"})
        await manager.add_message(message)
    await manager.get_messages_for_request()
    await manager.close()


def keep(url: str, name: str, said: Iterable[str | dict[str, Any]]) -> None:
    """Add messages to a session; a text is a user's."""

    async def add() -> None:
        config = load_config({"token_counter": "heuristic"})
        manager = ContextManager(config, session_id=name, store=open_store(url, durability="flush"))
        for one in said:
            await manager.add_message({"role": "user", "content": one} if isinstance(one, str) else one)
        await manager.close()

    asyncio.run(add())


@contextmanager
def opened(url: str, name: str) -> Iterator[None]:
    """Have a session open, as another process does."""
    store = open_store(url)
    with asyncio.Runner() as runner:
        runner.run(store.open(name))
        try:
            yield
        finally:
            runner.run(store.close())


def messages(run: Run, name: str, url: str, *options: str) -> list[dict[str, object]]:
    shown = run("show", name, "--store", url, "--json", *options).output
    return [json.loads(line) for line in shown.splitlines()]


def viewed(url: str, name: str, *options: str) -> list[dict[str, Any]]:
    """Return the messages of a view that `view --json` prints, without their marks."""
    lines = [json.loads(line) for line in run_at(url, "view", name, "--json", *options).splitlines()]
    return [{key: value for key, value in line.items() if key != "mark"} for line in lines]


def run_at(url: str, *arguments: str, fails: bool = False) -> str:
    """Run a command on a store; return what it printed."""
    done = CliRunner().invoke(main, [*arguments, "--store", url])
    assert (done.exit_code != 0) is fails, done.output
    return done.output
