"""Repair a damaged database of sessions: ``python -m amplifier_context_core.repair FILE``.

What is readable is copied into a new file, which takes the place of the damaged one; that one is kept beside it. Of a
session in a folder (``SESSION/context.db``), what only its text file holds is taken from there. Needs no extra. No
other program may use the file meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import StoreError
from .stores.jsonl.paths import DATABASE_NAME, MAIN_NAME
from .stores.jsonl.store import JsonlStore
from .stores.protocol import Repair
from .stores.sqlite.schema import replacement
from .stores.sqlite.store import SqliteStore


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 if the database cannot be repaired."""
    parser = argparse.ArgumentParser(
        prog="python -m amplifier_context_core.repair",
        description="Copy what is readable of a damaged SQLite database of sessions into a new file.",
    )
    parser.add_argument("file", type=Path, help="the database; the damaged one is kept beside it")
    file: Path = parser.parse_args(arguments).file.absolute()
    if not file.is_file() and not replacement(file).is_file():
        parser.error(f"{file}: no such file")
    try:
        repairs = asyncio.run(_repaired(file))
    except StoreError as problem:
        print(f"Error: {problem}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    for repair in repairs:
        print(repair.summary)  # noqa: T201 - a command
    print("repaired" if repairs else "nothing to repair")  # noqa: T201 - a command
    return 0


async def _repaired(file: Path) -> list[Repair]:
    """Return what was lost and what was copied; nothing if nothing is damaged."""
    repairs: list[Repair] = []
    mirror = file.with_name(MAIN_NAME) if file.name == DATABASE_NAME else file.with_suffix(".jsonl")
    store, session_id = SqliteStore(file), None
    if mirror.exists():
        root, name = (file.parent.parent, None) if file.name == DATABASE_NAME else (file.parent, mirror)
        store, session_id = JsonlStore(root, file=name), file.parent.name if name is None else file.stem
    try:
        await store.repair(session_id, repairs.append)
    finally:
        await store.close()
    return repairs


if __name__ == "__main__":
    sys.exit(main())
