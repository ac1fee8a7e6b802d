"""Reference recall: the share of the identifiers that an agent used next and that were still in its view.

Only identifiers count that a few earlier messages contain; an identifier of many messages is not recalled but common.
*Far* identifiers were last mentioned outside the newest quarter of the budget. *Located* is the strict measure: in a
chapter a hit counts only on a line that also names the tool, the file or the speaker that it came from, so that a list
of words scores nothing.

A view may name a root of paths once, in a line of its own: `[./ = /home/x/project/]`. It holds to the next such line of
the same message: a run in between that begins with the sign is exactly the path `root + "/" + rest`. The rule is the
same for every manager.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from amplifier_context_testing.caches.request import Memo, Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import SYSTEM_ROLES, Message, as_mapping, calls_of, results_of
from amplifier_context_testing.checks.texts import decoded, identifiers, leaves, spoken

FAR = 0.25  # share of the budget: an identifier last mentioned before the newest tokens of this share is far
_FEW = 3  # messages, or a fifth of the history if that is more
_LINE = 4_000  # characters: in a longer line only this much around a hit can locate it
EDGES = "./:@#-_"
_ROOT = re.compile(r"\[(?P<sign>\S{0,3}/) = (?P<root>/\S+)/\]")
_BELOW = r"(?<![\w./:@#-])%s(?P<rest>[A-Za-z0-9_.][A-Za-z0-9_./:@#-]*)"
_FILE = re.compile(r"[\w.@+-]*[./][\w./@+-]*\w")
_KNOWN_BY = 40  # characters at the start of a message by which a clipped message is recognised


@dataclass(frozen=True, slots=True)
class Target:
    """An identifier of the next recorded message, to be searched for in the view.

    Attributes:
        name: the identifier.
        far: True if the last message that mentions it is outside the newest quarter of the budget.
        origins: the tools, files and speakers that it came from.
    """

    name: str
    far: bool
    origins: frozenset[str]


class References:
    """The identifiers of one session by message, with their origins."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._names = [identifiers(spoken(message)) for message in messages]
        self._spoken = [message.get("role") not in SYSTEM_ROLES for message in messages]
        self._origins = list(_origins(messages))

    def targets(self, near: Sequence[int]) -> dict[int, list[Target]]:
        """Return targets by the index of the message that uses them again; `near` as `course.near` returns it."""
        last: dict[str, int] = {}
        spread: dict[str, int] = {}
        origins: dict[str, frozenset[str]] = {}
        found: dict[int, list[Target]] = {}
        before = 0
        for index, names in enumerate(self._names):
            few = max(_FEW, before / 5)
            found[index] = [
                Target(name, last[name] < near[index], origins[name])
                for name in sorted(names)
                if name in last and spread[name] <= few
            ]
            if self._spoken[index]:
                before += 1
                for name in names:
                    last[name] = index
                    spread[name] = spread.get(name, 0) + 1
                    origins[name] = origins.get(name, frozenset()) | self._origins[index]
        return found


@dataclass(slots=True)
class Sight:
    """The searchable texts of a view.

    Attributes:
        verbatim: text of the recorded messages, in full or clipped.
        chapters: texts that represent other messages.
        chapter_tokens: tokens of the chapters.
        rooted: paths that a message writes below a root, spelled in full, with the lines they are on.
    """

    verbatim: str
    chapters: list[str]
    chapter_tokens: int
    rooted: Mapping[str, list[str]]

    def holds(self, name: str) -> bool:
        """True if the view contains a name, or writes exactly this path below a root."""
        held = name in self.verbatim or any(name in chapter for chapter in self.chapters)
        return held or name.strip(EDGES) in self.rooted

    def locates(self, name: str, origins: Iterable[str]) -> bool:
        """True if a recorded message contains a name, or a chapter line that also names an origin."""
        if name in self.verbatim:
            return True
        wanted = _any_of(frozenset(origins))
        if wanted is None:
            return False
        if any(wanted.search(line) is not None for line in self.rooted.get(name.strip(EDGES), ())):
            return True
        return any(
            wanted.search(around.replace(name, " ")) is not None
            for chapter in self.chapters
            for around in _lines_with(chapter, name)
        )


class RecallProbe:
    """Distinguishes chapters from recorded messages: a message that was never recorded is a chapter."""

    def __init__(self, scale: TokenScale) -> None:
        self.scale = scale
        self._text = Memo(scale.text)
        self._rooted = Memo(lambda message: list(below_roots(scale.text(message))))
        self._starts: set[tuple[str, str]] = set()

    def learn(self, message: Message) -> None:
        self._starts.add(_start(message, self.scale.text(message)))

    def sight(self, request: Request) -> Sight:
        """Divide a view into recorded messages and chapters."""
        verbatim: list[str] = []
        chapters: list[str] = []
        rooted: dict[str, list[str]] = {}
        weight = 0
        for message, number, tokens in zip(request.messages, request.numbers, request.tokens, strict=True):
            text = self._text.of(number, message)
            for path, line in self._rooted.of(number, message):
                rooted.setdefault(path, []).append(line)
            if self.is_chapter(message, text):
                chapters.append(text)
                weight += tokens
            else:
                verbatim.append(text)
        return Sight("\n".join(verbatim), chapters, weight, rooted)

    def is_chapter(self, message: Message, text: str) -> bool:
        """True if this message, with this text, represents others."""
        if message.get("role") in ("tool", "function"):
            return False  # a result is always after its call
        metadata = as_mapping(message.get("metadata")) or {}
        if metadata.get("source") == "context-compaction":
            return True
        return _start(message, text) not in self._starts


def _start(message: Mapping[str, Any], text: str) -> tuple[str, str]:
    return str(message.get("role")), text.strip()[:_KNOWN_BY]


def below_roots(text: str) -> Iterator[tuple[str, str]]:
    """Yield each path that a text writes below a root, spelled in full, and the rest of its line."""
    below: re.Pattern[str] | None = None
    root = ""
    for line in text.split("\n"):
        named = _ROOT.fullmatch(line)
        if named is not None:
            root, below = named["root"], re.compile(_BELOW % re.escape(named["sign"]))
        elif below is not None:
            for found in below.finditer(line):
                path = f"{root}/{found['rest']}".strip(EDGES)
                yield path, f"{line[: found.start()]} {line[found.end() :]}"


def _lines_with(chapter: str, name: str) -> Iterator[str]:
    """Yield the lines that contain a name; of a very long line only the text around each hit."""
    at = chapter.find(name)
    while at >= 0:
        start = chapter.rfind("\n", 0, at) + 1
        end = chapter.find("\n", at)
        end = len(chapter) if end < 0 else end
        if end - start <= _LINE:
            yield chapter[start:end]
            at = chapter.find(name, end)
        else:
            yield chapter[max(start, at - _LINE // 2) : min(end, at + _LINE // 2)]
            at = chapter.find(name, at + len(name))


@lru_cache(maxsize=100_000)
def _any_of(origins: frozenset[str]) -> re.Pattern[str] | None:
    if not origins:
        return None
    return re.compile(r"(?<!\w)(?:" + "|".join(re.escape(name) for name in sorted(origins)) + r")(?!\w)", re.IGNORECASE)


def _origins(messages: Sequence[Message]) -> Iterator[frozenset[str]]:
    """Yield for each message the possible origins of its names: called or answering tools, files, the speaker."""
    called: dict[str, frozenset[str]] = {}
    for message in messages:
        found: set[str] = set()
        for result in results_of(message):
            found |= called.get(str(result.id), frozenset())
        for call in calls_of(message):
            names = {str(call.name)} if call.name else set[str]()
            for value in leaves(decoded(call.arguments)):
                if len(value) <= 300:
                    names |= {match.rsplit("/", 1)[-1] for match in _FILE.findall(value)}
            called[str(call.id)] = frozenset(names)
            found |= names
        if message.get("role") in ("user", "assistant"):
            found.add(str(message["role"]))
        if message.get("role") == "user":
            found.add("human")
        if message.get("name"):
            found.add(str(message["name"]))
        yield frozenset(name for name in found if len(name) > 1)
