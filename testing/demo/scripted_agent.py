"""A scripted agent that explores a folder with real tools: the demo runs it in place of a model.

Policy for provider-replay, over the tools of tool-folder:

    providers:
      - module: provider-replay
        config: {script: "amplifier_context_testing.demo.scripted_agent:explore_script", steps: 60}

It lists folders, reads files and searches for the names it found in them, sometimes with two or three calls at once. It
also returns to the names of the first files and to files read long ago. That is what makes real sessions hard to
compact. Where the tool `context_recall` is mounted and a record in the request names a reading, it recalls that
instead of reading again. Each step is decided from the results in the request and from what it remembers; nothing is
random, so a folder that does not change is always explored the same way. Requests for summaries get extracted ones.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from ..checks.message_shapes import results_of, text_of
from ..replay.answer_policies import Answer, Calling, Policy
from ..summaries import with_summaries

RECALL = "context_recall"
STEPS = 60  # answers before the report, if there is enough to see

_ROTA = ("read", "read", "search", "list", "read", "old name", "read", "search", "read", "old file")
_ENTRY = re.compile(r"(dir|file)  (?:(\d+)  )?(.+)")
_NAME = re.compile(r"\b[A-Za-z]+(?:_[A-Za-z0-9]+)+\b|\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b")
_SKIPPED = frozenset({"__pycache__", "node_modules", "build", "dist", "venv", "target", "site-packages"})
_HUGE = 4_000_000  # bytes; larger files are not read
_PAGE = 400  # lines of one reading
_RECALLED = 60  # lines that are recalled of one
_OLD = 10  # steps
# In a record of earlier messages: the call, or what was said beside it.
_READING = re.compile(r"^m(\d+) (?:read_file;?|assistant: (?:… )?Next I read) ([^\s,]+)", re.MULTILINE)

_SUFFIXES = """
    .c .cc .cfg .cpp .css .csv .go .h .html .ini .java .js .json .jsonl .kt .md .php .py .pyi .rb .rs .rst .sh .sql
    .toml .ts .tsx .txt .xml .yaml .yml
"""
_TEXT_SUFFIXES = frozenset(["", *_SUFFIXES.split()])  # "": Makefile, LICENSE


def explore_script(config: Mapping[str, Any]) -> Policy:
    """Return the policy for provider-replay. Config: `steps`, the answers before the report (60)."""
    steps = config.get("steps", STEPS)
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"explore_script: steps is {steps!r}; it must be a whole number above 0")
    return with_summaries(_Explorer(steps))


@dataclass(slots=True)
class _Seen:
    """One file that was read: its most frequent names, and the step of the newest reading."""

    names: list[str]
    read_at: int


class _Explorer:
    def __init__(self, steps: int) -> None:
        self.steps = self.until = steps
        self.step = 0
        self.listed = 0
        self.folders = deque(["."])
        self.files: deque[str] = deque()
        self.seen: dict[str, _Seen] = {}
        self.searched: dict[str, int] = {}  # names, with the step
        self.marks: dict[str, int] = {}  # of readings that the request names in a record
        self.pending: dict[str, Calling] = {}

    def __call__(self, request: Any) -> Answer:
        self._learn(request)
        calls = self._next_calls() if self.step < self.until else []
        if not calls:
            self.until = self.step + self.steps  # a further prompt looks on from where this one stopped
            return Answer.of(self._report())
        self.step += 1
        calls = [replace(call, id=f"explore_{self.step}_{place}") for place, call in enumerate(calls)]
        self.pending = {call.id: call for call in calls}
        return Answer(({"type": "text", "text": self._thought(calls)},), tuple(calls))

    # --- what to do next ----------------------------------------------------------------------------------------------

    def _next_calls(self) -> list[Calling]:
        first = "list" if not self.listed or (self.folders and not self.files) else _ROTA[self.step % len(_ROTA)]
        kinds = (first, "read", "search", "list", "old name", "old file")
        return next((calls for kind in kinds if (calls := list(self._calls(kind)))), list[Calling]())

    def _calls(self, kind: str) -> Iterator[Calling]:
        several = 1 + self.step % 3
        match kind:
            case "list":
                for _ in range(min(len(self.folders), 2)):
                    yield Calling("list_folder", {"path": self.folders.popleft()})
            case "read":
                for _ in range(min(len(self.files), several)):
                    yield Calling("read_file", {"path": self.files.popleft(), "lines": _PAGE})
            case "search":
                for name in islice(self._names(reversed(self.seen.values())), several - 1 or 1):
                    yield Calling("search_files", {"text": name})
            case "old name":
                for name in islice(self._names(islice(self.seen.values(), 4)), 1):
                    yield Calling("search_files", {"text": name})
            case _:
                path, old = min(self.seen.items(), key=lambda item: item[1].read_at, default=("", None))
                if old is None or self.step - old.read_at < _OLD:
                    return
                if path in self.marks:
                    old.read_at, mark = self.step, self.marks[path]
                    yield Calling(RECALL, {"operation": "read", "mark": f"m{mark}-m{mark + 1}", "limit": _RECALLED})
                else:
                    yield Calling("read_file", {"path": path, "lines": _PAGE})

    def _names(self, files: Iterable[_Seen]) -> Iterator[str]:
        """Yield names of files that were not searched for, or long ago."""
        for seen in files:
            yield from (name for name in seen.names if self.step - self.searched.get(name, -_OLD) >= _OLD)

    # --- what was learned ---------------------------------------------------------------------------------------------

    def _learn(self, request: Any) -> None:
        can_recall = any(tool.name == RECALL for tool in request.tools or ())
        self.marks = dict(_readings(request.messages)) if can_recall else {}
        for message in request.messages:
            if message.role == "assistant":
                continue
            for result in results_of(message.model_dump(exclude_unset=True)):
                call = self.pending.pop(str(result.id), None)
                output = result.content if isinstance(result.content, str) else text_of(result.content)
                if call is not None and not output.startswith("Error: "):
                    self._note(call, output)
        self.pending.clear()

    def _note(self, call: Calling, output: str) -> None:
        if call.name == "list_folder":
            self.listed += 1
            self._note_entries(str(call.arguments["path"]), output)
        elif call.name == "search_files":
            self.searched[str(call.arguments["text"])] = self.step
        elif call.name == "read_file":
            counts = Counter(_NAME.findall(output))
            names = sorted(counts, key=lambda name: (-counts[name], name))[:8]
            self.seen.setdefault(str(call.arguments["path"]), _Seen(names, 0)).read_at = self.step

    def _note_entries(self, folder: str, output: str) -> None:
        found: list[str] = []
        for line in output.splitlines():
            entry = _ENTRY.fullmatch(line)
            if entry is None:
                continue
            kind, size, name = entry.groups()
            path = name if folder == "." else f"{folder}/{name}"
            if kind == "dir":
                bare = name.rstrip("/")
                if not bare.startswith(".") and bare not in _SKIPPED and not bare.endswith(".egg-info"):
                    self.folders.append(path.rstrip("/"))
            elif PurePosixPath(name).suffix.lower() in _TEXT_SUFFIXES and size != "0":
                found += [path] if int(size or 0) <= _HUGE else []
        found.sort(key=lambda path: not PurePosixPath(path).name.lower().startswith("readme"))
        # Folders take turns: the first files of a new folder go before the later files of an old one.
        self.files = deque([*found[:3], *self.files, *found[3:]])

    # --- texts --------------------------------------------------------------------------------------------------------

    def _thought(self, calls: list[Calling]) -> str:
        first = calls[0]
        if first.name == RECALL:
            path = next(path for path, mark in self.marks.items() if first.arguments["mark"].startswith(f"m{mark}-"))
            return f"Back to {path}: I read it long ago, and recall what I read."
        which = " and ".join(str(call.arguments.get("path", call.arguments.get("text"))) for call in calls)
        if first.name == "list_folder":
            return f"I look at what is in {'the folder' if which == '.' else which}."
        if first.name == "search_files":
            return f"{which}: where else {'are they' if len(calls) > 1 else 'is it'} used?"
        if first.arguments["path"] in self.seen:
            return f"Back to {which}: I read it a while ago and want to be sure."
        return f"Next I read {which}."

    def _report(self) -> str:
        return (
            f"I listed {self.listed} folders, read {len(self.seen)} files and searched for {len(self.searched)} names. "
            + "".join(
                f"It began with {path} ({', '.join(seen.names[:3])}). " for path, seen in islice(self.seen.items(), 1)
            )
            + f"{len(self.files)} files and {len(self.folders)} folders are left unseen."
        )


def _readings(messages: Iterable[Any]) -> Iterator[tuple[str, int]]:
    """Yield what records in a request name as read, with the marks."""
    for message in messages:
        content = message.content
        if message.role in ("user", "system"):
            text = content if isinstance(content, str) else text_of(message.model_dump()["content"])
            yield from ((found[2].rstrip("."), int(found[1])) for found in _READING.finditer(text))
