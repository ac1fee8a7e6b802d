"""A scripted agent that explores a folder with real tools: the demo runs it in place of a model.

Policy for provider-replay, over the tools of tool-folder:

    providers:
      - module: provider-replay
        config: {script: "amplifier_context_testing.demo.scripted_agent:explore_script", steps: 60}

It lists folders, reads files and searches for the names it found in them, sometimes with two or three calls at once. It
also returns to the names of the first files and to files read long ago. That is what makes real sessions hard to
compact. Where the tool `context_recall` is mounted and a record in the request names a reading, it recalls that
instead of reading again. Each step is decided from the results in the request and from what it remembers; nothing is
random, so a folder that does not change is always explored the same way.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from ..checks.message_shapes import results_of, text_of
from ..replay.answer_policies import Answer, Calling

RECALL = "context_recall"
STEPS = 60  # answers before the report, if there is enough to see

_ENTRY = re.compile(r"^(dir|file)  (?:(\d+|\?)  )?(.+?)(?: \(link\))?$")
_NAME = re.compile(r"\b[A-Za-z_][A-Za-z0-9_]{5,39}\b")
_SKIPPED = frozenset({"__pycache__", "node_modules", "build", "dist", "venv", "target", "site-packages"})
_HUGE = 4_000_000  # bytes; larger files are not read
_PAGE = 400  # lines of one reading
_RECALLED = 60  # lines that are recalled of one
# In a record of earlier messages: the call, or what was said beside it.
_READING = re.compile(r"^m(\d+) (?:read_file;?|assistant: (?:… )?Next I read) ([^\s,]+)", re.MULTILINE)

_SUFFIXES = """
    .c .cc .cfg .cpp .css .csv .go .h .html .ini .java .js .json .jsonl .kt .md .php .py .pyi .rb .rs .rst .sh .sql
    .toml .ts .tsx .txt .xml .yaml .yml
"""
_TEXT_SUFFIXES = frozenset(["", *_SUFFIXES.split()])  # "": Makefile, LICENSE

_WORDS = """
    annotations another assert because before cannot config continue default except function import include instance
    integer isinstance license module nothing object package private public require return select should static string
    version whether without
"""
_COMMON = frozenset(_WORDS.split())


def explore_script(config: Mapping[str, Any]) -> ExploreScript:
    """Return the policy for provider-replay. Config: `steps`, the answers before the report (60)."""
    steps = config.get("steps", STEPS)
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"explore_script: steps is {steps!r}; it must be a whole number above 0")
    return ExploreScript(steps)


@dataclass(slots=True)
class _Seen:
    """One file that was read: its path, its most frequent names, and the step."""

    path: str
    names: list[str]
    read_at: int


@dataclass(slots=True)
class ExploreScript:
    """The policy and its memory.

    Attributes:
        steps: answers with calls before the report, for each prompt.
        seen: the files read, in order, with their most frequent names.
    """

    steps: int = STEPS
    step: int = 0
    folders: deque[str] = field(default_factory=lambda: deque(["."]))
    files: deque[str] = field(default_factory=deque[str])
    seen: list[_Seen] = field(default_factory=list[_Seen])
    listed: int = 0
    failed: int = 0
    searched: dict[str, int] = field(default_factory=dict[str, int])
    marks: dict[str, int] = field(default_factory=dict[str, int])
    pending: dict[str, Calling] = field(default_factory=dict[str, Calling])
    until: int = field(init=False)

    def __post_init__(self) -> None:
        self.until = self.steps

    def __call__(self, request: Any) -> Answer:
        self._learn(request)
        calls = list(self._next_calls()) if self.step < self.until else []
        if not calls:
            self.until = self.step + self.steps  # a further prompt looks on from where this one stopped
            return Answer.of(self._report())
        self.step += 1
        calls = [replace(call, id=f"explore_{self.step}_{place}") for place, call in enumerate(calls)]
        self.pending = {call.id: call for call in calls}
        return Answer(({"type": "text", "text": self._thought(calls)},), tuple(calls))

    # --- what to do next ----------------------------------------------------------------------------------------------

    def _next_calls(self) -> Iterator[Calling]:
        turn = self.step
        read, listed, search, back, again = self._read, self._list, self._search_new, self._search_old, self._read_again
        if not self.listed or (self.folders and not self.files):
            order = (listed, read, search, back, again)
        elif turn % 11 == 10:
            order = (again, back, read, listed, search)
        elif turn % 7 == 6:
            order = (back, search, read, listed, again)
        elif turn % 4 == 3:
            order = (search, read, listed, back, again)
        elif turn % 5 == 4:
            order = (listed, read, search, back, again)
        else:
            order = (read, listed, search, back, again)
        yield from next((found for kind in order if (found := list(kind(turn)))), ())

    def _list(self, turn: int) -> Iterator[Calling]:
        for _ in range(min(len(self.folders), 2 if turn % 3 == 2 else 1)):
            yield Calling("list_folder", {"path": self.folders.popleft()})

    def _read(self, turn: int) -> Iterator[Calling]:
        wanted = 3 if turn % 6 == 5 else 2 if turn % 4 == 1 else 1
        for _ in range(min(len(self.files), wanted)):
            yield Calling("read_file", {"path": self.files.popleft(), "lines": _PAGE})

    def _search_new(self, turn: int) -> Iterator[Calling]:
        """Yield searches for names of the newest file that were not searched for yet."""
        for seen in reversed(self.seen[-3:]):
            names = list(islice((name for name in seen.names if name not in self.searched), 2 if turn % 8 == 3 else 1))
            if names:
                yield from (Calling("search_files", {"text": name}) for name in names)
                return

    def _search_old(self, turn: int) -> Iterator[Calling]:
        early = [name for seen in self.seen[:4] for name in seen.names]
        fresh = [name for name in early if name not in self.searched]
        ago = [name for name in early if self.step - self.searched.get(name, self.step) >= 12]
        yield from (Calling("search_files", {"text": name}) for name in [*fresh, *ago][:1])

    def _read_again(self, turn: int) -> Iterator[Calling]:
        old = min(self.seen, key=lambda seen: seen.read_at, default=None)
        if old is None or self.step - old.read_at < 10:
            return
        if old.path in self.marks:
            old.read_at, mark = self.step, self.marks[old.path]
            yield Calling(RECALL, {"operation": "read", "mark": f"m{mark}-m{mark + 1}", "limit": _RECALLED})
        else:
            yield Calling("read_file", {"path": old.path, "lines": _PAGE})

    # --- what was learned ---------------------------------------------------------------------------------------------

    def _learn(self, request: Any) -> None:
        can_recall = any(tool.name == RECALL for tool in request.tools or ())
        self.marks = dict(_readings(request.messages)) if can_recall else {}
        found: dict[str, Any] = {}
        for message in reversed(request.messages):
            if len(found) == len(self.pending):
                break
            if message.role != "assistant":
                results = results_of(message.model_dump(exclude_unset=True))
                found |= {str(result.id): result.content for result in results if result.id in self.pending}
        for call_id, call in self.pending.items():
            if call_id in found:
                content = found[call_id]
                self._note(call, content if isinstance(content, str) else text_of(content))
        self.pending.clear()

    def _note(self, call: Calling, output: str) -> None:
        if output.startswith("Error: "):
            self.failed += 1
        elif call.name == "list_folder":
            self.listed += 1
            self._note_entries(str(call.arguments["path"]), output)
        elif call.name == "read_file":
            self._note_file(str(call.arguments["path"]), output)
        elif call.name == "search_files":
            self.searched[str(call.arguments["text"])] = self.step

    def _note_entries(self, folder: str, output: str) -> None:
        small: list[str] = []
        for line in output.splitlines():
            entry = _ENTRY.match(line)
            if entry is None:
                continue
            kind, size, name = entry.groups()
            path = name if folder == "." else f"{folder}/{name}"
            if kind == "dir":
                bare = name.rstrip("/")
                if not bare.startswith(".") and bare not in _SKIPPED and not bare.endswith(".egg-info"):
                    self.folders.append(path.rstrip("/"))
            elif PurePosixPath(name).suffix.lower() in _TEXT_SUFFIXES and size not in ("0", "?"):
                small += [path] if int(size or 0) <= _HUGE else []
        small.sort(key=lambda path: not PurePosixPath(path).name.lower().startswith("readme"))
        # Folders take turns: the first files of a new folder go before the later files of an old one.
        self.files = deque([*small[:3], *self.files, *small[3:]])

    def _note_file(self, path: str, output: str) -> None:
        counts = Counter(name for name in _NAME.findall(output) if name.lower() not in _COMMON)
        # Coined names have an underscore or a capital inside. Words all in capitals are prose.
        coined = [
            name for name in counts if "_" in name.strip("_") or (name[1:] != name[1:].lower() and not name.isupper())
        ]
        names = sorted(coined or counts, key=lambda name: (-counts[name], name))[:8]
        known = next((seen for seen in self.seen if seen.path == path), None)
        if known is not None:
            known.read_at = self.step
        else:
            self.seen.append(_Seen(path, names, self.step))

    # --- texts --------------------------------------------------------------------------------------------------------

    def _thought(self, calls: list[Calling]) -> str:
        first = calls[0]
        if first.name == RECALL:
            path = next(path for path, mark in self.marks.items() if first.arguments["mark"].startswith(f"m{mark}-"))
            return f"Back to {path}: I read it long ago, and recall what I read."
        objects = [str(call.arguments.get("path", call.arguments.get("text"))) for call in calls]
        which = ", ".join(objects[:-1]) + (" and " if len(objects) > 1 else "") + objects[-1]
        if first.name == "list_folder":
            return f"I look at what is in {'the folder' if which == '.' else which}."
        if first.name == "search_files":
            source = next((seen.path for seen in self.seen if objects[0] in seen.names), None)
            seen_in = f" I saw it in {source}." if source is not None and len(objects) == 1 else ""
            return f"{which}: where else {'are they' if len(objects) > 1 else 'is it'} used?{seen_in}"
        if any(seen.path == objects[0] for seen in self.seen):
            return f"Back to {which}: I read it a while ago and want to be sure."
        return f"Next I read {which}."

    def _report(self) -> str:
        if not self.seen:
            return f"I listed {self.listed} folders and found no text to read."
        first = self.seen[0]
        names = ", ".join(first.names[:3]) or "no names that stand out"
        busiest = max(self.seen, key=lambda seen: len(seen.names))
        return (
            f"I listed {self.listed} folders, read {len(self.seen)} files and searched for {len(self.searched)} names"
            f"{f'; {self.failed} attempts failed' if self.failed else ''}. It began with {first.path} ({names}); "
            f"most names stand out in {busiest.path}. "
            f"{len(self.files)} files and {len(self.folders)} folders are left unseen."
        )


def _readings(messages: Iterable[Any]) -> Iterator[tuple[str, int]]:
    marks: set[int] = set()
    for message in messages:
        content = message.content
        if message.role not in ("user", "system"):
            continue
        text = content if isinstance(content, str) else text_of(message.model_dump()["content"])
        for found in _READING.finditer(text):
            mark = int(found[1])
            if mark not in marks:
                marks.add(mark)
                yield found[2].rstrip("."), mark
