"""The commands `copy`, `verify`, `repair`, `fork`, `rewind` and `delete`: maintenance of stored sessions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from amplifier_context_core.errors import ContextError, StoreError
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.stores import Checkable, Extent, Repair, Repairable, Store, read_in_batches
from amplifier_context_core.stores.validation import check_conversation_id, derived_session_id
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.redaction import REDACTED_TEXT
from amplifier_context_core.transcript.transcript import Transcript
from amplifier_context_core.view.session_state import load

from .formatting import counted, shell_quoted
from .printing import confirm, json_option, print_fact, print_remark
from .store_options import OpenedStore, on_session, on_store, run_command, store_at
from .stored_managers import manager_of

_ANY = "any"  # a session id; the session need not exist
INCOMPLETE = b'{"version": "none: it is an incomplete copy"}'  # in place of the checkpoint, until all is copied
_FORK_POINT = re.compile(r"[mua]\d{1,18}")


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--session", "chosen", multiple=True, metavar="SESSION", help="Copy only this session; may be given several times."
)
@json_option
def copy(source: str, target: str, chosen: tuple[str, ...]) -> None:
    """Copy sessions with their archives from one store to another.

    FROM and TO are URLs, such as jsonl:FOLDER or sqlite:FILE. A session that exists in TO is not changed, unless an
    interrupted copy left it, and it holds nothing else: then it is copied again. Sessions are copied in the order of
    their last change, so that `sessions` lists them in the same order.
    """

    async def work() -> bool:
        async with store_at(source, what="FROM") as old, store_at(target, makes=True, what="TO") as new:
            names = [info.session_id for info in reversed(await old.store.sessions())]
            for name in chosen:
                await old.length(name)
            names = [name for name in names if not chosen or name in chosen]
            existing = {info.session_id for info in await new.store.sessions()}
            copied = 0
            for name in names:
                exists = name in existing and not await _is_incomplete(new.store, name)
                length = None if exists else await _copy(old, new.store, name)
                if length is None:
                    sentence = f"{shell_quoted(name)}: exists there, not changed"
                    if await _is_incomplete(new.store, name):
                        sentence += "; it is an incomplete copy with changes of its own"
                    print_fact(sentence, session_id=name, copied=False)
                    continue
                sentence = f"{shell_quoted(name)}: {counted(length, 'message')}"
                print_fact(sentence, session_id=name, copied=True, length=length)
                copied += 1
            sentence = f"{copied:,} of {counted(len(names), 'session')} copied from {old.location} to {new.location}"
            print_fact(sentence, source=old.location, target=new.location, sessions=len(names), copied=copied)
            return copied == len(names) or not chosen

    if not run_command(work()):
        raise Exit(1)


async def _copy(at: OpenedStore, new: Store, name: str) -> int | None:
    """Copy a session and return its number of messages; None if it exists. Delete the incomplete copy after a failure.

    Until the last call, the checkpoint says that the copy is incomplete: a crash leaves nothing that looks complete.
    """
    old = at.store
    length = (await old.extent(name)).length
    archived = await old.archived(name)
    current = {entry.seq for entry in await old.find(name, [entry.seq for entry in archived])}
    gone = [entry for entry in archived if entry.seq not in current]
    gone += await _highest(old, name, {entry.seq for entry in gone})
    # Decided while the session is locked: no other program creates it, or goes on with it, meanwhile.
    while await new.open(name) != Extent() or await new.load_checkpoint(name) is not None:
        if not (await _is_incomplete(new, name) and await _is_of_copy(old, new, name, gone)):
            await new.release(name)
            return None
        await new.delete(name)  # this unlocks it
    try:
        await new.save_checkpoint(name, 0, INCOMPLETE)
        await new.append(name, gone)
        await new.replace(name, 0, ())  # moves the archived entries to the archive
        async for entries in read_in_batches(old, name):
            await new.append(name, entries)
        await at.require_all(name, length - (await new.extent(name)).length)
        data = await old.load_checkpoint(name)
        if data != INCOMPLETE:  # else the copy is incomplete, too
            await new.save_checkpoint(name, *_usable(data))
    except (ContextError, OSError, click.ClickException):
        with suppress(StoreError):  # on a full disk, say; what is left is marked as incomplete
            await new.delete(name)
        raise
    await new.release(name)
    return length


async def _is_incomplete(store: Store, name: str) -> bool:
    with suppress(StoreError):  # a damaged session is one that exists
        return await store.load_checkpoint(name) == INCOMPLETE
    return False


async def _is_of_copy(old: Store, new: Store, name: str, gone: list[Entry]) -> bool:
    """True if a session holds nothing but what a copy writes: no other program has gone on with it."""
    archived = await new.archived(name)
    if not archived and await new.read(name, 0, len(gone) + 1) in ([], gone):  # they are archived by the next call
        return True
    at = 0
    async for entries in read_in_batches(new, name):
        if await old.read(name, at, at + len(entries)) != entries:
            return False
        at += len(entries)
    return archived == gone


def _usable(checkpoint: bytes | None) -> tuple[int, bytes]:
    """Return how many entries a checkpoint covers, one of `compat` none, and its bytes; none if it is of another
    version.
    """
    try:
        saved = load(checkpoint) if checkpoint else None
    except ValueError:
        return 0, b""  # a resume builds a new one
    return saved.covered_count if saved else 0, checkpoint or b""


async def _highest(store: Store, name: str, archived: set[int]) -> list[Entry]:
    """Return an entry to archive if the store holds none of the highest seq: that seq must not be assigned again."""
    last = (await store.extent(name)).last_seq
    if not last or last in archived or await store.find(name, [last]):
        return []
    message, info = parse_message({"role": "system", "content": REDACTED_TEXT})
    gone = Transcript.resumed(name, (), (), length=0, last_seq=last - 1)
    return [gone.draft(message, info, 1, created="")]


@click.command()
@click.argument("names", nargs=-1, metavar="[SESSION]...")
@on_store
async def verify(at: OpenedStore, names: tuple[str, ...]) -> None:
    """Look for damage without changing anything. The exit code is 1 if there is damage.

    Without a SESSION all sessions are checked.
    """
    # A store that is damaged as a whole reports that for any id; listing its sessions would repair it.
    if not names and isinstance(at.store, Checkable) and (problems := await at.store.verify(_ANY)):
        _report(at.location, problems, store=at.location)
        damaged = [()]
    else:
        chosen = await _chosen(at, names, "verify")
        damaged = [
            (name,) for name in chosen if _report(shell_quoted(name), await _problems(at, name), session_id=name)
        ]
    for one in damaged:
        print_fact(f"{at.command('repair', *one)} repairs what can be repaired")
    if damaged:
        raise Exit(1)


async def _chosen(at: OpenedStore, names: Sequence[str], command: str) -> Sequence[str]:
    chosen = names or [info.session_id for info in await at.store.sessions()]
    if not chosen:
        print_fact(f"no sessions in {at.location}, nothing to {command}; {at.other_store_hint}")
    return chosen


def _report(what: str, problems: Sequence[str], **data: str) -> bool:
    first = f"{what}: {counted(len(problems), 'problem') if problems else 'sound'}"
    print_fact("\n  ".join([first, *problems]), **data, problems=list(problems))
    return bool(problems)


async def _problems(at: OpenedStore, name: str) -> list[str]:
    if isinstance(at.store, Checkable):
        problems = await at.store.verify(name)  # before any other call: other calls repair
        if not problems:
            await at.length(name)
        return problems
    length = await at.length(name)
    read = sum([len(entries) async for entries in read_in_batches(at.store, name)])
    return [] if read == length else [f"{length - read:,} of {length:,} messages cannot be read"]


@click.command()
@click.argument("names", nargs=-1, metavar="[SESSION]...")
@on_store
async def repair(at: OpenedStore, names: tuple[str, ...]) -> None:
    """Repair damaged sessions; without a SESSION all of them. Unreadable bytes are kept in a quarantine.

    What sessions share, such as a database file, is always repaired. The exit code is 1 if damage remains.
    """
    if isinstance(at.store, Repairable):
        shared: list[Repair] = []
        await at.store.repair(None, shared.append)
        for made in shared:
            sentence = f"{at.location}: {made.description}, {counted(made.lost, 'message')} lost{_kept_in(made)}"
            print_fact(sentence, store=at.location, repairs=[_repaired(made)])
    chosen, left = await _chosen(at, names, "repair"), False
    for name in chosen:
        try:
            left |= await _repair(at, name)
        except ContextError as problem:
            if names:
                raise
            left = True
            print_remark(f"{shell_quoted(name)}: {problem}", session_id=name, problems=[str(problem)])
    if left:
        raise Exit(1)


async def _repair(at: OpenedStore, name: str) -> bool:
    """Repair a session and print the repairs; return True if damage remains."""
    repairs: list[Repair] = []
    left = await _problems(at, name)  # not `length`, which repairs what it meets, and reports it nowhere
    if left and isinstance(at.store, Repairable):
        await at.store.repair(name, repairs.append)
    await at.store.open(name, repairs.append)
    async for _ in read_in_batches(at.store, name):
        pass  # reading repairs
    await at.store.load_checkpoint(name)
    if left or repairs:
        left = await _problems(at, name)
    lines = [f"  repaired: {made.description}{_kept_in(made)}" for made in repairs]
    lost = sum(made.lost for made in repairs)
    done = f"{counted(len(repairs), 'repair')}, {counted(lost, 'message')} lost" if repairs or left else "sound"
    length = (await at.store.extent(name)).length
    lines.append(f"{shell_quoted(name)}: {counted(length, 'message')}, {done}")
    lines += [f"  not repaired: {problem}" for problem in left]
    data = {"length": length, "repairs": list(map(_repaired, repairs)), "problems": left}
    print_fact("\n".join(lines), session_id=name, **data)
    if left:
        print_fact(
            "the rest cannot be repaired; restore a backup, or copy the readable messages with `amplifier-context copy`"
        )
    await at.store.release(name)
    return bool(left)


def _kept_in(made: Repair) -> str:
    return f"; the damaged bytes are kept in {Path(made.quarantined_at).name}" if made.quarantined_at else ""


def _repaired(made: Repair) -> dict[str, Any]:
    return {"repair": made.description, "lost": made.lost, "quarantined_at": made.quarantined_at}


@on_session
@click.argument("new", metavar="[NEW]", required=False)
@click.option(
    "--at",
    "mark",
    metavar="MARK",
    help="The last message of the fork: m30, the user's message of turn 12 (u12), the end of turn 12 (a12).",
)
async def fork(at: OpenedStore, session_id: str, new: str | None, mark: str | None) -> None:
    """Create a session from the beginning of another, to continue differently from there.

    NEW is the id of the fork; by default it is derived from SESSION and MARK, and printed.
    """
    length = await at.length(session_id)
    if mark:
        length = await _length_at(at, session_id, mark, "--at: ")
    made = new or derived_session_id(session_id, f"-at-{mark or 'end'}")
    check_conversation_id(made)
    await at.store.fork(session_id, made, length)
    sentence = f"{shell_quoted(made)}: {counted(length, 'message')} of {shell_quoted(session_id)}"
    print_fact(sentence, session_id=made, fork_of=session_id, length=length)


async def _length_at(at: OpenedStore, name: str, mark: str, where: str = "") -> int:
    if not _FORK_POINT.fullmatch(mark):
        raise click.UsageError(f"{where}{mark!r} is not a mark; a mark is m30 (a message), u12 or a12 (of turn 12)")
    seen = end = 0
    async for entries in read_in_batches(at.store, name):
        for entry in entries:
            seen += 1
            if mark in (entry.mark, entry.turn_id, f"a{entry.turn}"):
                end = seen
    if not end:
        has_none = f"the history of {shell_quoted(name)} has no {mark}"
        raise click.ClickException(f"{where}{has_none}; list its marks with {at.command('show', name)}")
    return end


@on_session
@click.argument("mark", metavar="MARK")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
async def rewind(at: OpenedStore, session_id: str, mark: str, yes: bool) -> None:
    """Take a session back to MARK: m30, the user's message of turn 12 (u12), or the end of turn 12 (a12).

    Later messages go to the archive: `show --archived` lists them, and `recall` still finds them. To keep the session
    and go on from there in another one, use `fork`.
    """
    length = await at.length(session_id)
    kept = await _length_at(at, session_id, mark)
    if kept == length:
        sentence = f"{shell_quoted(session_id)}: {mark} is its newest message"
        print_remark(sentence, session_id=session_id, length=length, archived=0)
        return
    later = f"{counted(length - kept, 'message')} after {mark}"
    if not yes:
        confirm(f"Take the {later} out of {shell_quoted(session_id)}?")
    manager = await manager_of(at.store, session_id)
    try:
        await manager.set_messages((await manager.get_messages())[:kept])
    finally:
        await manager.close()
    sentence = f"{shell_quoted(session_id)}: {counted(kept, 'message')}; the {later} are in its archive"
    print_fact(sentence, session_id=session_id, length=kept, archived=length - kept)


@on_session
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
async def delete(at: OpenedStore, session_id: str, yes: bool) -> None:
    """Erase a session with its archive, its index and its checkpoint."""
    length = await at.length(session_id)
    if not yes:
        confirm(f"Erase {shell_quoted(session_id)} with its {counted(length, 'message')}?")
    await at.store.open(session_id)  # fails if another process has the session open
    await at.store.delete(session_id)
    print_fact(f"{shell_quoted(session_id)}: erased", session_id=session_id, length=length, erased=True)
