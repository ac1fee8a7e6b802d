"""The commands `import` and `export`: sessions of other programs, and for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from amplifier_context_core import ContextManager, Entry, InvalidMessage
from amplifier_context_core.messages.parsing import CALL_BLOCKS, blocks_of, parse_message, results_of
from amplifier_context_core.stores import read_in_batches
from amplifier_context_core.stores.codec import loads
from amplifier_context_core.stores.validation import check_conversation_id

from ..formatting import counted, printable_text, shell_quoted
from ..printing import is_json, json_line, json_option, print_fact, print_remark
from ..store_options import OpenedStore, on_session, run_command, store_at, store_option, write_private
from ..views import copy_of
from .atif import is_atif, read_atif, write_atif
from .claude_code import is_claude_code, read_claude_code
from .codex import is_codex, read_codex
from .conversation import Conversation, Message, UnknownFormat, items, lines_of, mapping
from .markdown import write_markdown
from .message_lists import is_message_list, read_messages

_WRITTEN = ("atif", "markdown", "messages")
_CARRIED = {"text", "tool_result", *CALL_BLOCKS}  # types of blocks that each format has
_SNIFFED = 50  # lines by which a format is recognised
_READERS: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Conversation]]] = {
    "atif": (is_atif, read_atif),
    "claude-code": (lambda value: is_claude_code(items(value)[:_SNIFFED]), read_claude_code),
    "codex": (lambda value: is_codex(items(value)[:_SNIFFED]), read_codex),
    "messages": (is_message_list, read_messages),
}


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--session", "session_id", metavar="SESSION", help="Its id here; by default the name of the file.")
@click.option("--format", "name", type=click.Choice([*_READERS]), help="By default recognised from the file.")
@store_option
@json_option
def import_(file: Path, session_id: str | None, name: str | None, url: str | None) -> None:
    """Read a session of another program: Claude Code, Codex, an ATIF trajectory, or messages (JSON or JSONL).

    The file is not changed. What messages cannot carry is listed.
    """
    chosen = session_id or file.name.partition(".")[0]

    async def work() -> None:
        found = _read(file, name)
        check_conversation_id(chosen)
        async with store_at(url, makes=True) as at:
            if (await at.store.extent(chosen)).last_seq:
                raise click.ClickException(f"{shell_quoted(chosen)} exists in {at.location}; name another by --session")
            manager = ContextManager(session_id=chosen, store=at.store)
            sound: list[Message] = []
            refused: dict[int, str] = {}
            for number, message in enumerate(found.messages, 1):
                try:
                    sound.append(parse_message(message)[0])
                except InvalidMessage as problem:
                    refused[number] = str(problem)
                    click.echo(f"message {number:,} is left out: {problem}", err=True)
            try:
                await manager.set_messages(sound)  # all in one commit: a sync for each would take minutes
            finally:
                await manager.close()
            if not sound:
                raise click.ClickException(f"{file} has no message that can be stored")
            data = {"store": at.location, "length": len(sound), "left_out": found.left_out, "refused": refused}
            sentence = f"{shell_quoted(chosen)} in {at.location}: {counted(len(sound), 'message')}"
            print_fact(sentence, session_id=chosen, **data)
            _list(found.left_out)
            click.echo(f"{at.command('report', chosen, options=('-o', 'report.html'))} shows it as a page", err=True)

    run_command(work())


def _list(left_out: Mapping[str, int]) -> None:
    for what, count in sorted(left_out.items()):
        click.echo(f"left out: {count:,} {what}", err=True)


def _read(file: Path, name: str | None) -> Conversation:
    value = _parsed(file)
    names = [name] if name else [one for one, (matches, _) in _READERS.items() if matches(value)]
    if not names:
        raise click.ClickException(
            f"{file} has no known format: a session of Claude Code or of Codex (JSONL), an ATIF trajectory, "
            "or a list of messages"
        )
    try:
        return _READERS[names[0]][1](value)
    except UnknownFormat as problem:
        raise click.ClickException(f"{file}: {problem}") from None


def _parsed(file: Path) -> Any:
    """Return the JSON of a file; of JSONL the list of its lines.

    Raises:
        click.ClickException: it is neither; the text names the line.
    """
    data = file.read_bytes()
    try:
        value = loads(data)
    except (ValueError, RecursionError):
        pass
    else:
        is_line = not {"role", "sessionId"}.isdisjoint(mapping(value) or ())  # of JSONL, the only one
        return [value] if is_line else value
    lines: list[Any] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            lines += [loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as problem:
            raise click.ClickException(f"{file} is no JSON, and line {number:,} is none either: {problem}") from None
    return lines


async def _pieces(at: OpenedStore, session_id: str, name: str, entries: Sequence[Entry]) -> Iterable[str]:
    if name == "markdown":
        return map(printable_text, write_markdown(session_id, entries))
    if name == "messages":
        return (json_line(entry.message) for entry in entries)
    manager = await copy_of(at, session_id, None)
    compactions = await manager.compactions()
    chapters = [chapter["text"] for chapter in await manager.chapters()] if compactions else []
    return [json_line(write_atif(session_id, entries, version("amplifier-context-cli"), compactions, chapters))]


def _left_out(entries: Iterable[Entry]) -> Counter[str]:
    """Return what only messages carry: blocks that are no text, such as images and thinking, those of results too."""
    left_out = Counter[str]()
    for message in (entry.message for entry in entries):
        blocks = [block for result in results_of(message) for block in items(result.content)]
        blocks += () if message["role"] == "tool" else blocks_of(message)
        kinds = (str((mapping(block) or {}).get("type", "")) for block in blocks)
        left_out.update(lines_of(kind, "blocks") for kind in kinds if kind not in _CARRIED)
    return left_out


@on_session
@click.option("--format", "name", type=click.Choice(_WRITTEN), required=True, help="What to write.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The file; else the output.")
async def export(at: OpenedStore, session_id: str, name: str, output: Path | None) -> None:
    """Write the history of a session as an ATIF trajectory, as Markdown, or as its messages, one in a line.

    The file is readable for its owner only. --json reports on it, so it takes --output. What the format
    cannot carry is listed.
    """
    if output is None and is_json():
        raise click.UsageError("--json reports on a file: name one by --output")
    length = await at.length(session_id)
    entries = [entry async for batch in read_in_batches(at.store, session_id) for entry in batch]
    await at.require_all(session_id, length - len(entries))
    left_out = Counter[str]() if name == "messages" else _left_out(entries)
    _list(left_out)
    pieces = await _pieces(at, session_id, name, entries)
    if output is None:
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    write_private(output, pieces)
    sentence = f"{output}: {counted(len(entries), 'message')}"
    data = {"file": str(output), "length": len(entries), "left_out": left_out}
    print_remark(sentence, session_id=session_id, **data)
