"""Endless coding sessions for benchmarks: shaped like real ones, cheap enough to make a million messages of.

What was measured on recorded sessions (4,531 messages of fifteen sessions) and is kept here: one user message for every
ten answers; 1.1 calls an answer; tool outputs from a dozen characters to a hundred thousand, half of them below a
kilobyte and a few making most of the bulk; files read, edited and read again; names that come back after hundreds of
messages. Sizes are set so that a message is about 2 kB of JSON on average.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from math import exp, log
from typing import Any, Literal

from .conversation_builder import call_message
from .message_shapes import Message

Call = tuple[str, dict[str, object]]

Quantiles = tuple[tuple[float, int], ...]
"""A distribution of sizes in characters, given at some of its quantiles."""

_OUTPUT: Quantiles = (
    (0.0, 12),
    (0.1, 45),
    (0.3, 200),
    (0.5, 800),
    (0.75, 3_600),
    (0.9, 8_500),
    (0.99, 40_000),
    (1.0, 100_000),
)
_FILE: Quantiles = ((0.0, 150), (0.5, 1_800), (0.75, 5_500), (0.9, 14_000), (0.99, 40_000), (1.0, 80_000))
_EDIT: Quantiles = ((0.0, 40), (0.5, 220), (0.9, 1_000), (0.99, 4_000), (1.0, 9_000))
_SENTENCES: Quantiles = ((0.0, 20), (0.5, 110), (0.9, 420), (0.99, 1_500), (1.0, 3_600))
_ASKED: Quantiles = ((0.0, 12), (0.5, 90), (0.8, 400), (0.95, 6_000), (1.0, 16_000))

_WORDS = """
    load save parse build fetch merge split check render resolve store find update remove encode decode

    cache token session message record budget window buffer header schema index worker queue socket cursor patch branch
    ledger batch filter
"""
_VERBS, _NOUNS = (part.split() for part in _WORDS.split("\n\n"))
_SUFFIXES = ("", "_async", "_lazily", "_all", "_strict", "_once")

_LINES = 24_000  # lines of the text everything is cut from
_FILES = 160


def coding_session(messages: int, seed: int = 0, *, shape: Literal["openai", "kernel"] = "openai") -> Iterator[Message]:
    """Exactly `messages` messages of a coding session, one after the other; the same for the same seed.

    Every call is answered directly after it, in order; the history is valid, except that in OpenAI's shape
    the content of an answer without words is null.

    Args:
        messages: how many; 0 gives none.
    """
    left = messages
    project = _Project(shape, seed)
    for group in project.groups():
        if len(group) > left:
            break
        yield from group
        left -= len(group)
        if not left:
            return
    for place in range(left):  # no room for a whole round any more
        role = "user" if place % 2 else "assistant"
        yield {"role": role, "content": project.words(80)}


@lru_cache(maxsize=8)
def _source(seed: int) -> tuple[tuple[str, ...], str, Any]:
    """Return names, the long text, and the state of the generator after both.

    They take most of the time of a short session, and tests make hundreds of the same few seeds.
    """
    rng = random.Random(seed)
    names = [f"{verb}_{noun}{suffix}" for verb in _VERBS for noun in _NOUNS for suffix in _SUFFIXES]
    rng.shuffle(names)

    def line() -> str:
        indent = "    " * rng.randrange(1, 4)
        return f"{indent}{rng.choice(_NOUNS)}_{rng.randrange(99)} = {rng.choice(names)}({rng.randrange(10_000)})"

    text = "\n".join([line() for _ in range(_LINES)])
    return tuple(names), text, rng.getstate()


class _Project:
    """An imaginary project: files cut from one long text, and what was seen and named so far."""

    def __init__(self, shape: Literal["openai", "kernel"], seed: int) -> None:
        self._names, self._text, state = _source(seed)
        self._rng = rng = random.Random()
        rng.setstate(state)
        self._shape: Literal["openai", "kernel"] = shape
        self._seed = seed
        self._calls = 0
        self._paths = [
            f"src/{rng.choice(_NOUNS)}/{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}_{n}.py" for n in range(_FILES)
        ]
        self._starts = [rng.randrange(len(self._text) - 120_000) for _ in range(_FILES)]
        self._sizes = [self._size(_FILE) for _ in range(_FILES)]
        self._versions = [0] * _FILES
        self._touched: list[int] = []
        self._kinds: list[tuple[float, Callable[[], tuple[list[Call], list[str]]]]] = [
            (0.26, self._read),
            (0.34, self._read_several),
            (0.52, self._edit),
            (0.66, self._search),
            (1.00, self._run),
        ]

    def groups(self) -> Iterator[list[Message]]:
        rng = self._rng
        yield [{"role": "user", "content": f"Implement {rng.choice(self._names)}.\n{self.words(1_500)}"}]
        while True:
            for _ in range(rng.randrange(4, 16)):
                yield self._round()
            yield [{"role": "assistant", "content": self.words(self._size(_SENTENCES) + 200)}]
            yield [{"role": "user", "content": self.words(self._size(_ASKED))}]

    def words(self, size: int) -> str:
        """About `size` characters of talk that names files and functions, now and then from the very beginning."""
        rng, sentences, length = self._rng, list[str](), 0
        while length < size:
            early = self._touched[: max(1, len(self._touched) // 20)] if rng.random() < 0.2 else self._touched[-12:]
            path = self._paths[rng.choice(early)] if early else self._paths[0]
            sentences.append(
                f"{rng.choice(self._names)} in {path} should {rng.choice(_VERBS)} the {rng.choice(_NOUNS)} first."
            )
            length += len(sentences[-1]) + 1
        return " ".join(sentences)

    def _round(self) -> list[Message]:
        rng = self._rng
        pick = rng.random()
        calls, outputs = next(make for share, make in self._kinds if pick < share)()
        ids = [self._id() for _ in calls]
        text = self.words(self._size(_SENTENCES)) if rng.random() < 0.5 else None
        answer = call_message(self._shape, list(zip(ids, calls, strict=True)), text)
        results: list[Message] = [
            {"role": "tool", "tool_call_id": call_id, "content": output}
            for call_id, output in zip(ids, outputs, strict=True)
        ]
        return [answer, *results]

    def _read(self) -> tuple[list[Call], list[str]]:
        file = self._file()
        return [("Read", {"file_path": self._paths[file]})], [self._shown(file)]

    def _read_several(self) -> tuple[list[Call], list[str]]:
        files = [self._file() for _ in range(self._rng.randrange(2, 5))]
        return [("Read", {"file_path": self._paths[file]}) for file in files], [self._shown(file) for file in files]

    def _edit(self) -> tuple[list[Call], list[str]]:
        file = self._file(known=True)
        self._versions[file] += 1
        size = self._size(_EDIT)
        old = self._cut(self._starts[file], size)
        edit: dict[str, object] = {
            "file_path": self._paths[file],
            "old_string": old,
            "new_string": f"{old}\n# edited: {self._rng.choice(self._names)}",
        }
        return [("Edit", edit)], [f"The file {self._paths[file]} has been updated (edit {self._versions[file]})."]

    def _search(self) -> tuple[list[Call], list[str]]:
        name = self._rng.choice(self._names)
        size = self._size(_OUTPUT) // 2
        path = self._paths[self._file(known=True)]
        hits = [
            f"{path}:{self._rng.randrange(900)}: {name}(" for _ in range(min(60, 1 + size // (len(path) + len(name))))
        ]
        return [("Grep", {"pattern": name, "path": "src"})], ["\n".join(hits)]

    def _run(self) -> tuple[list[Call], list[str]]:
        command = f"python -m pytest tests/test_{self._rng.choice(_NOUNS)}.py -k {self._rng.choice(self._names)}"
        output = self._cut(self._rng.randrange(len(self._text) - 120_000), self._size(_OUTPUT))
        return [("Bash", {"command": command, "description": self.words(60)})], [output]

    def _file(self, *, known: bool = False) -> int:
        rng = self._rng
        if self._touched and (known or rng.random() < 0.6):
            recent = self._touched[-10:] if rng.random() < 0.8 else self._touched[:10]
            return rng.choice(recent)
        file = rng.randrange(_FILES)
        self._touched.append(file)
        if len(self._touched) > 400:
            del self._touched[200:210]  # the first files stay known to the end
        return file

    def _shown(self, file: int) -> str:
        """Return a file's text as a tool prints it; a second reading has the same length and text."""
        text = self._cut(self._starts[file], self._sizes[file])
        return f"{self._paths[file]} (edit {self._versions[file]})\n{text}"

    def _cut(self, start: int, size: int) -> str:
        return self._text[start : start + size]

    def _id(self) -> str:
        self._calls += 1
        return f"toolu_{self._seed & 0xFFFF:04x}{self._calls:020x}"

    def _size(self, quantiles: Quantiles) -> int:
        point = self._rng.random()
        for (low, small), (high, large) in pairwise(quantiles):
            if point <= high:
                share = (point - low) / (high - low)
                return int(exp(log(small) + share * (log(large) - log(small))))
        return quantiles[-1][1]
