"""The commands `view`, `context`, `explain` and `search`: what the model is shown of a stored session, and why.

The session is read into memory, with its session state. So it may be open in another process, and nothing about
it changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import click

from amplifier_context_core.errors import ContextError
from amplifier_context_core.manager import ContextManager
from amplifier_context_core.messages.parsing import Message
from amplifier_context_core.messages.usage import measured
from amplifier_context_core.outgoing.provider_messages import provider_messages, with_cache_hints
from amplifier_context_core.stores import MemoryStore, Searchable, read_in_batches
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.matching_lines import excerpts, words_of
from amplifier_context_core.view.figures import line_of_compaction
from amplifier_context_core.view.sent_view import SentView
from amplifier_context_core.view.window_usage import line_of, text_of_usage

from .formatting import counted, printable_text, screen_width, shell_quoted, time_text
from .printing import is_json, print_json, print_row, print_wrapped, words
from .store_options import OpenedStore, budget_option, mark, on_session, on_store
from .stored_managers import manager_of

_EXCERPT = 160  # characters of a message that a search prints, where no line is named
_MOST_ROUNDS = 40  # rounds that `explain` prints one by one
_MOST_MEMBERS = 6  # of what must stay, that `explain` names
_SPENT = ("input_tokens", "cache_read_tokens", "output_tokens")
_GROWN = "a folded round is a line of its chapter; of a short round the line may be longer than the round was"

_budget = budget_option("Show the next request at a budget such as 16k, compacted if need be.")


@on_session
@_budget
@click.option(
    "--chapter", type=mark, metavar="MARK", help="Print the chapter that has this message, such as m12, word for word."
)
async def view(at: OpenedStore, session_id: str, budget: int | None, chapter: int | None) -> None:
    """Show what the model would be sent of a session now: chapters, and messages with their marks."""
    manager = await copy_of(at, session_id, budget)
    await manager.explain()  # takes the view
    sent = manager.compactor.last_sent
    chapters = await manager.chapters() if sent else []
    if chapter is not None:
        _print_chapter(chapters, chapter)
        return
    if is_json():
        for place, message in _marked(sent, merge=manager.config.merge_consecutive) if sent else ():
            print_json({"mark": place, **message})
        return
    for one in [*sent.system, *sent.messages] if sent else ():
        head = f"{f'm{one.seq}' if one.seq > 0 else '-':>7} {one.message['role']:<9} {one.tokens:>7,} counted"
        print_row(head, words(one.message))
    if chapters:
        hint = at.command("view", session_id, options=("--chapter", chapters[0]["mark"]))
        click.echo(f"{counted(len(chapters), 'chapter')}: {hint}", err=True)


def _marked(sent: SentView, *, merge: bool) -> list[tuple[str | None, Message]]:
    """Return the messages of a request with their marks: of merged ones the first, of a text of the view None."""
    made = provider_messages(sent.key, (*sent.system, *sent.messages), merge=merge)
    marks = [f"m{seqs[0]}" if seqs else None for _, seqs in made]
    return list(zip(marks, with_cache_hints([message for message, _ in made], sent.key), strict=True))


def _print_chapter(chapters: list[dict[str, Any]], seq: int) -> None:
    found = next((one for one in chapters if int(one["mark"][1:]) <= seq <= int(one["to"][1:])), None)
    if found is None:
        spans = ", ".join(f"{one['mark']} to {one['to']}" for one in chapters)
        raise click.ClickException(f"no chapter of the view has m{seq}; there are {spans or 'none'}")
    if is_json():
        print_json(found)
    else:
        click.echo(printable_text(found["text"]))


@on_session
@_budget
@click.option("--short", is_flag=True, help="Print one line.")
async def context(at: OpenedStore, session_id: str, budget: int | None, short: bool) -> None:
    """Show how full the window of a session is: by kind, until the next compaction, and what a request costs."""
    manager = await copy_of(at, session_id, budget)
    usage = await manager.usage()
    await manager.load()
    spent = _spent(manager.history.snapshot())
    if is_json():
        print_json({**usage, "spent": spent})
        return
    click.echo(line_of(usage) if short else text_of_usage(usage, screen_width()))
    for one in () if short else spent:
        cached = f"{one['cache_read_tokens'] / one['input_tokens']:.0%}" if one["input_tokens"] else "none"
        tokens = f"{one['input_tokens']:,} input tokens ({cached} read from the cache), {one['output_tokens']:,} output"
        money = f", {Decimal(one['cost_usd']):,.2f} USD" if one["cost_usd"] else ""
        print_wrapped(f"so far, {one['model'] or 'a model'}: {counted(one['answers'], 'answer')}, {tokens}{money}")


@on_session
@_budget
@click.option("--history", "log", is_flag=True, help="Print the last compactions instead.")
async def explain(at: OpenedStore, session_id: str, budget: int | None, log: bool) -> None:
    """Say why the view of a session is as it is: its size, its threshold, and what became of each round."""
    manager = await copy_of(at, session_id, budget)
    if log:
        rows = await manager.compactions()
        for row in rows:
            if is_json():
                print_json(row)
            else:
                print_wrapped(f"{time_text(row['at'])}  {line_of_compaction(row)}", indent=4)
        if not rows:
            click.echo(f"{shell_quoted(session_id)} was not compacted", err=True)
        return
    report = await manager.explain()
    if is_json():
        print_json(report)
        return
    figures = report["view"]
    facts = {
        "view": f"{figures['tokens']:,} of {figures['budget']:,} tokens, {figures['figure']}",
        "history": f"{counted(report['messages'], 'message')}, {report['history_tokens']:,} tokens",
        "threshold": figures["why"],
        "kept": f"{report['floor']['tokens']:,} tokens must stay: {_members(report['floor']['members'])}",
    }
    if report["compactions"]:
        saved = f"{report['tokens_saved']:,} tokens saved; chapters have {figures['chapter_tokens']:,} of the view"
        facts["compacted"] = f"{counted(report['compactions'], 'time')}, {saved}"
    if summary := report.get("summary"):  # of context-summary
        cost, session = (f"{summary[key]:,}" for key in ("summary_cost", "session_cost"))
        facts["summaries"] = f"{counted(summary['calls'], 'call')}, cost {cost} beside {session} of the session"
    for name, text in facts.items():
        print_wrapped(f"{name:<10}{text}", indent=10)
    rows = report["rounds"]
    if len(rows) > _MOST_ROUNDS:
        click.echo(f"rounds    the newest {_MOST_ROUNDS} of {len(rows):,}; --json has all")
    listed = rows[-_MOST_ROUNDS:]
    for row in listed:
        span = row["mark"] if row["mark"] == row["to"] else f"{row['mark']} to {row['to']}"
        sizes = f"{row['tokens_before']:>7,} → {row['tokens_after']:>7,}"
        click.echo(f"{span:>16}  {row['state']:<10} {sizes}  {row['rule']}".rstrip())
    if any(row["state"] == "folded" and row["tokens_after"] > row["tokens_before"] for row in listed):
        print_wrapped(_GROWN)


def _members(members: list[dict[str, Any]]) -> str:
    listed = ", ".join(f"{one['mark']} ({one['why']})" for one in members[:_MOST_MEMBERS])
    return listed + (f", and {len(members) - _MOST_MEMBERS:,} more" if len(members) > _MOST_MEMBERS else "")


@click.command()
@click.argument("words_", nargs=-1, required=True, metavar="SESSION WORDS...")
@on_store
@click.option("--all", "everywhere", is_flag=True, help="Search all sessions; then no SESSION is named.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Messages at most, of each session."
)
async def search(at: OpenedStore, words_: tuple[str, ...], everywhere: bool, limit: int) -> None:
    """Find messages of a session by words, the best first."""
    if everywhere:
        await _search_all(at, " ".join(words_), limit)
        return
    session_id, *wanted = words_
    if not wanted:
        raise click.UsageError("name a session and words, or --all and words")
    query = " ".join(wanted)
    manager = await copy_of(at, session_id, None)
    found = [(place, await manager.recall(place)) for place in await manager.search(query, limit)]
    for place, message in found:
        if message is None:
            continue
        if is_json():
            print_json({"mark": place, **message})
        else:
            print_row(f"{place:>7} {message['role']:<9}", _matching(words(message), query))
    if not found:
        click.echo(f"{shell_quoted(session_id)} has no message with {shell_quoted(query)}", err=True)


async def _search_all(at: OpenedStore, query: str, limit: int) -> None:
    """Search the sessions of a store, the last changed first. One that cannot be read is named, and passed over."""
    hits = 0
    for info in await at.store.sessions():
        name = info.session_id
        try:
            if isinstance(at.store, Searchable):
                seqs = await at.store.search(name, query, limit)
            else:
                seqs = [int(place[1:]) for place in await (await copy_of(at, name, None)).search(query, limit)]
            found = {entry.seq: entry for entry in await at.store.find(name, seqs)}
        except (ContextError, click.ClickException) as problem:
            click.echo(f"{shell_quoted(name)} cannot be searched: {problem}", err=True)
            continue
        for entry in (found[seq] for seq in seqs if seq in found):
            hits += 1
            if is_json():
                print_json({"session_id": name, "mark": entry.mark, **entry.message})
            else:
                head = f"{printable_text(shell_quoted(name))} {entry.mark} {entry.role}"
                print_row(head, _matching(words(entry.message), query))
    if not hits:
        click.echo(f"no session of {at.location} has {shell_quoted(query)}", err=True)


async def copy_of(
    at: OpenedStore, session_id: str, budget: int | None, *, makes_request: bool = True
) -> ContextManager:
    """Return a manager of a copy of the session in memory, with the checkpoint that the store has of it.

    With a budget the next request is made on the copy, so that its view is what would be sent, unless `makes_request`
    is false.
    """
    memory = MemoryStore()
    length = await at.length(session_id)
    async for entries in read_in_batches(at.store, session_id):
        await memory.append(session_id, entries)
    await at.require_all(session_id, length - (await memory.extent(session_id)).length)
    data = await at.store.load_checkpoint(session_id)
    if data:
        await memory.save_checkpoint(session_id, length, data)
    manager = await manager_of(memory, session_id, budget)
    if budget and makes_request:
        await manager.get_messages_for_request()
    return manager


def _spent(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return what providers reported of a session, summed by model: tokens, and dollars if each answer has them."""
    spent: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.response is None or (usage := entry.response.usage) is None:
            continue
        model = entry.response.model or ""
        row = spent.setdefault(model, {"model": model, "answers": 0, **dict.fromkeys(_SPENT, 0), "cost_usd": "0"})
        row["answers"] += 1
        row["input_tokens"] += measured(usage)
        row["cache_read_tokens"] += usage.cache_read_tokens
        row["output_tokens"] += usage.output_tokens
        cost, stated = row["cost_usd"], usage.cost_usd
        row["cost_usd"] = None if cost is None or stated is None else str(Decimal(cost) + Decimal(stated))
    return list(spent.values())


def _matching(text: str, query: str) -> str:
    """Return the line of a text that matches a query best, or what of it fits the screen; else the text's beginning.

    A search finds other forms of words too, so a hit need not have a word of the query.
    """
    found = excerpts(text.split("\n"), words_of(query), 1, max(1, screen_width() - 21))
    return found[0][1] if found else text[:_EXCERPT]
