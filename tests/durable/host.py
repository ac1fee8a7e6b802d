"""A host that keeps a transcript of its own, as Microsoft's app-cli does, and gives it back when it resumes a session.

Its transcript is one message a line: without system and developer messages, without null values, with a second
timestamp at the top that says when it was saved. What was there before is kept as a backup. Beside it is the host's
event log, and in the project's folder the history of its prompt.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from amplifier_context_core import ContextManager


class Host:
    """The files of one session of a host, below the home of its user.

    Args:
        home: of the user.
        session_id: the session's folder is named so.
        project: the project's folder as this host names it; other than ours.
    """

    def __init__(self, home: Path, session_id: str, project: str = "-tmp-x") -> None:
        self.project = home / ".amplifier" / "projects" / project
        self.folder = self.project / "sessions" / session_id
        self.folder.mkdir(parents=True, exist_ok=True)
        self.transcript = self.folder / "transcript.jsonl"

    async def save(self, manager: ContextManager) -> None:
        """Write the history down, as after every tool call and every turn."""
        lines: list[str] = []
        for message in await manager.get_messages():
            if message["role"] in ("system", "developer"):
                continue
            saved = {key: without_nulls(value) for key, value in message.items() if value is not None}
            saved.setdefault("timestamp", datetime.now(UTC).isoformat(timespec="milliseconds"))
            lines.append(json.dumps(saved, ensure_ascii=False))
        if self.transcript.exists():
            self.transcript.replace(self.transcript.with_suffix(".jsonl.backup"))
        self.transcript.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def saved(self) -> list[dict[str, Any]]:
        """What was written down last."""
        return [json.loads(line) for line in self.transcript.read_text(encoding="utf-8").splitlines()]

    async def resume(self, manager: ContextManager, instructions: str = "") -> None:
        """Hand the transcript back; a second time with the instructions of today before it."""
        await manager.set_messages(self.saved())
        if instructions:
            await manager.set_messages([{"role": "system", "content": instructions}, *self.saved()])

    def prompted(self, text: str) -> None:
        """Note a prompt in the prompt's history and in the event log."""
        with (self.project / "repl_history").open("a", encoding="utf-8") as file:
            file.write(f"\n# {datetime.now(UTC)}\n" + "".join(f"+{line}\n" for line in text.split("\n")))
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": "prompt:submit", "data": {"prompt": text}}) + "\n")


def without_nulls(value: Any) -> Any:
    """JSON data without its null values."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value if item is not None] if isinstance(value, list) else value
