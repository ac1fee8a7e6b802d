"""Commands as a user runs them, and the kept sessions that they are run on; one of these holds a secret."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner, Result

from amplifier_context_cli.app import main
from amplifier_context_core import ContextManager, Store, load_config, open_store
from amplifier_context_testing import coding_session

SECRET = "sk-live-4242-topsecret"
Message = dict[str, Any]
T = TypeVar("T")


def run(*arguments: str, at: str = "", stdin: str | None = None, code: int | None = 0) -> Result:
    """Run a command on a store, else on that of the fixture `url`. It ends with this code, for None with any error."""
    done = CliRunner().invoke(main, [*arguments, *(["--store", at] if at else [])], input=stdin)
    assert done.exit_code == code or (code is None and done.exit_code), done.output
    assert "Traceback" not in done.output
    return done


def rows(*arguments: str, at: str = "") -> list[dict[str, Any]]:
    """Run a command with `--json`; return what it printed."""
    return [json.loads(line) for line in run(*arguments, "--json", at=at).stdout.splitlines()]


def viewed(name: str, *options: str, at: str = "") -> list[Message]:
    """Return the messages of a view that `view --json` prints, without their marks."""
    shown = rows("view", name, *options, at=at)
    return [{key: value for key, value in line.items() if key != "mark"} for line in shown]


def in_store(url: str, work: Callable[[Store], Awaitable[T]], *, archive: bool = True) -> T:
    """Return what work makes of a store, which is closed then."""

    async def done() -> T:
        store = open_store(url, durability="none", archive=archive)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(done())


def in_session(url: str, work: Callable[[ContextManager], Awaitable[T]], name: str = "one", **config: Any) -> T:
    """Return what work makes of a session, which is closed then; keyword arguments are config keys."""

    async def done(store: Store) -> T:
        settings = load_config({"max_tokens": 6_000, **config})
        manager = ContextManager(settings, session_id=name, store=store)
        made = await work(manager)
        await manager.close()
        return made

    return in_store(url, done)


def keep(url: str, name: str, said: Iterable[str | Message]) -> None:
    """Add messages to a session; a text is a user's."""

    async def add(manager: ContextManager) -> None:
        for one in said:
            await manager.add_message({"role": "user", "content": one} if isinstance(one, str) else one)

    in_session(url, add, name, token_counter="heuristic", max_tokens=200_000)


def fill(url: str, name: str, messages: int, seed: int) -> None:
    """Keep a coding session, of which m21 holds the secret."""

    async def add(manager: ContextManager) -> None:
        for number, message in enumerate(coding_session(messages, seed)):
            if number == 20:
                await manager.add_message({"role": "user", "content": f"the key is {SECRET}, \x1b[2J keep it"})
            await manager.add_message(message)
        await manager.get_messages_for_request()

    in_session(url, add, name, token_counter="heuristic", max_tokens=8_000)


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


def is_in_files(text: str, folder: Path) -> bool:
    """True if the bytes of a text are in a file of a folder."""
    return any(text.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def messages(name: str, *options: str, at: str = "") -> list[Message]:
    return rows("show", name, *options, at=at)
