"""A host that keeps a transcript of its own, as Microsoft's app-cli does, and gives it back when it resumes a session.

Its transcript is one message a line: without system and developer messages and null values, with a second timestamp of
its own. Beside it are a backup of the one before and the host's event log; the history of prompts is the project's.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from amplifier_context_core import ContextManager


class Host:
    """The files of one session of a host, below the home of its user; it names the project's folder as we do not."""

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
            saved = {key: value for key, value in message.items() if value is not None}
            saved.setdefault("timestamp", datetime.now(UTC).isoformat(timespec="milliseconds"))
            lines.append(json.dumps(saved, ensure_ascii=False))
        if self.transcript.exists():
            self.transcript.replace(self.transcript.with_suffix(".jsonl.backup"))
        self.transcript.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def saved(self) -> list[dict[str, Any]]:
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
