"""Paths below a root that a view names once, in a line of its own: `[./ = /home/x/project/]`.

The root holds from its line to the next such line of the same message. On a line in between, a run that begins with the
sign is the path `root + "/" + rest`, and counts as exactly that path. The rule is the same for every manager, and the
figures are also given without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE = re.compile(r"\[(?P<sign>\S{0,3}/) = (?P<root>/\S+)/\]")
_BELOW = r"(?<![\w./:@#-])%s(?P<rest>[A-Za-z0-9_.][A-Za-z0-9_./:@#-]*)"
EDGES = "./:@#-_"


def below_roots(text: str) -> Iterator[tuple[str, str]]:
    """Yield each path that a text writes below a root, spelled in full, and the rest of its line."""
    below: re.Pattern[str] | None = None
    root = ""
    for line in text.split("\n"):
        named = _LINE.fullmatch(line)
        if named is not None:
            root, below = named["root"], re.compile(_BELOW % re.escape(named["sign"]))
        elif below is not None:
            for found in below.finditer(line):
                path = f"{root}/{found['rest']}".strip(EDGES)
                yield path, f"{line[: found.start()]} {line[found.end() :]}"
