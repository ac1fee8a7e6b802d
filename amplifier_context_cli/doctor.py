"""The command `doctor`: whether what the modules need is here, and what is in the way."""

from __future__ import annotations

import platform
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from importlib.metadata import PackageNotFoundError, distributions, entry_points, version
from pathlib import Path
from typing import Literal, NamedTuple

import click

from amplifier_context_core import Config
from amplifier_context_core.errors import ContextError
from amplifier_context_core.messages.tokens import load_counter
from amplifier_context_core.stores.sqlite.journal import journal_in

from .formatting import counted, shell_quoted
from .mount_plans import wrong_keys
from .printing import is_json, print_json, print_wrapped
from .store_options import OpenedStore, on_store

_OURS = "amplifier-context-"
_MODULES = ("context-simple", "context-persistent", "context-summary", "tool-context-recall")
_LISTED = 5  # names in one row


class Finding(NamedTuple):
    """What was looked at, and what was found.

    Attributes:
        state: ``ok``; ``note`` for what is worth knowing; ``wrong`` for what does not work.
    """

    what: str
    state: Literal["ok", "note", "wrong"]
    found: str


@click.command()
@on_store
@click.option(
    "--plan",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check the config keys of the modules in this mount plan too.",
)
@click.option("--fix", is_flag=True, help="Take the right to read the store's files from other users.")
async def doctor(at: OpenedStore, plan: Path | None, fix: bool) -> None:
    """Check the installation and a store. Without --fix nothing is changed. The exit code is 1 if one is wrong."""
    findings = [*_versions(), *_modules(), await _vocabulary(), _sqlite(), *[one async for one in _store(at, fix)]]
    for name, problems in await wrong_keys(plan, _MODULES) if plan else ():
        findings += [Finding("plan", "wrong", f"{name}: {problem}") for problem in problems]
        findings += [] if problems else [Finding("plan", "ok", f"{name} knows each key of its config")]
    for one in findings:
        if is_json():
            print_json(one._asdict())
        else:
            print_wrapped(f"{one.state:<6} {one.what:<12} {one.found}", indent=20)
    if any(one.state == "wrong" for one in findings):
        raise click.exceptions.Exit(1)


def _versions() -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()}")
    try:
        yield Finding("kernel", "ok", f"amplifier-core {version('amplifier-core')}")
    except PackageNotFoundError:
        yield Finding("kernel", "note", "amplifier-core is not installed: managers work without it, modules do not")
    ours = sorted({(one.name, one.version) for one in distributions() if one.name.startswith(_OURS)})
    is_even = len({number for _, number in ours}) == 1
    listed = ", ".join(f"{name.removeprefix(_OURS)} {number}" for name, number in ours)
    yield Finding("packages", "ok" if is_even else "wrong", listed + ("" if is_even else ": versions differ"))


def _modules() -> Iterator[Finding]:
    """Yield which distribution answers each module id: of several, the kernel uses the first that Python finds."""
    for name in _MODULES:
        claims = [point.dist.name for point in entry_points(group="amplifier.modules", name=name) if point.dist]
        if not claims:
            yield Finding("module", "note", f"{name} is not installed")
        elif len(claims) == 1:
            yield Finding("module", "ok", f"{name} is in {claims[0]}")
        else:
            yield Finding("module", "wrong", f"{name} is in {' and '.join(claims)}: uninstall all but one")


async def _vocabulary() -> Finding:
    counter = await load_counter(Config.model_validate({}).token_counter)
    if getattr(counter, "exact", False):
        return Finding("tokens", "ok", "counted exactly for OpenAI's models")
    return Finding("tokens", "note", "estimated: pip install 'amplifier-context-core[exact]' counts exactly")


def _sqlite() -> Finding:
    with closing(sqlite3.connect(":memory:")) as connection:
        missing = [name for name in ("porter", "trigram") if not _has_tokenizer(connection, name)]
    text = f"SQLite {sqlite3.sqlite_version}"
    if missing:
        return Finding("search", "note", f"{text} lacks FTS5 with {' and '.join(missing)}: searches read all messages")
    return Finding("search", "ok", f"{text} with full text search")


def _has_tokenizer(connection: sqlite3.Connection, name: str) -> bool:
    try:
        connection.execute(f"CREATE VIRTUAL TABLE has_{name} USING fts5(text, tokenize = '{name}')")
    except sqlite3.DatabaseError:
        return False
    return True


async def _store(at: OpenedStore, fix: bool) -> AsyncIterator[Finding]:
    try:
        infos = await at.store.sessions()
    except ContextError as problem:
        yield Finding("store", "wrong", str(problem))
        return
    yield Finding("store", "ok", f"{at.location}: {counted(len(infos), 'session')}")
    for info in [info for info in infos if info.holder][:_LISTED]:
        yield Finding("open", "note", f"{shell_quoted(info.session_id)} is in use by {info.holder}")
    scheme, _, path = at.location.partition(":")
    if scheme in ("jsonl", "sqlite"):
        readable = _readable_by_others(path)
        left = [one for one in readable if not (fix and _made_private(one))]
        if left:
            names = ", ".join(shell_quoted(str(one)) for one in left[:_LISTED])
            yield Finding("modes", "wrong", f"other users can read {names}: --fix, or chmod go= them")
        else:
            changed = f"; {counted(len(readable), 'file')} changed" if readable else ""
            yield Finding("modes", "ok", f"only you can read its files{changed}")


def _made_private(path: Path) -> bool:
    """Take all rights to a file from other users; False where the owner does not allow it, and for a link."""
    if path.is_symlink():  # its target may be anything
        return False
    with suppress(OSError):
        path.chmod(stat.S_IMODE(path.stat().st_mode) & stat.S_IRWXU)
        return True
    return False


def _readable_by_others(location: str) -> list[Path]:
    path = Path(journal_in(location)[0]).expanduser()
    files = [path, *path.glob("*/*")] if path.is_dir() else [path]
    others = stat.S_IRGRP | stat.S_IROTH
    is_private = path.is_dir() and not path.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    return [] if is_private else [one for one in files if one.is_file() and one.stat().st_mode & others]
