"""The regular expressions of the product, found in its modules, with how each is used.

A new one is found by itself: as an object of a module, or as a call of `re` in a function.
"""

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from amplifier_context_core.compaction import excerpts, rarity, roots, speech
from amplifier_context_core.transcript import ranking
from amplifier_context_core.transcript.query import Query

PACKAGES = (
    "amplifier_context_core",
    "amplifier_context_persistent",
    "amplifier_context_cli",
    "amplifier_context_recall",
    "amplifier_context_servers",
    "amplifier_context_simple",
    "amplifier_context_summary",
)
_SEARCHES = frozenset({"findall", "finditer", "search", "split", "sub"})
_CALLS = (*_SEARCHES, "compile", "match", "fullmatch")  # functions of `re`
_CALL = re.compile(rf"\bre\.(?:{'|'.join(_CALLS)})\(")

# Functions that make a pattern for text of a transcript, and a call for which each does.
MAKERS: dict[str, tuple[ModuleType, Callable[[], object]]] = {
    "core.compaction.excerpts._imperative": (excerpts, lambda: excerpts._imperative.__wrapped__()),
    "core.compaction.rarity._compiled": (
        rarity,
        lambda: [rarity._compiled.__wrapped__(one) for one in (rarity._TERM, rarity._UNSPACED)],
    ),
    "core.compaction.roots.Root._shortened": (roots, lambda: roots.Root("/a/a/", "./")._shortened("/a/a/a")),
    "core.compaction.roots._full": (roots, lambda: roots.with_full_paths("[./ = /a/a/]\n./a")),
    "core.compaction.speech._end_of_element": (speech, lambda: speech.read("<a>\n</a>", "person")),
    "core.transcript.ranking.finder": (ranking, lambda: ranking.finder(Query("and a/a/a 日日日 a.a").terms)),
}


class Regex(NamedTuple):
    """A pattern, and how it is used."""

    pattern: re.Pattern[Any]
    methods: frozenset[str]  # of ``match``, ``fullmatch`` and ``search``, those that the product calls


@cache
def modules() -> dict[str, ModuleType]:
    """Return the modules of the product by their names, without ``amplifier_context_``."""
    found: dict[str, ModuleType] = {}
    for package in map(importlib.import_module, PACKAGES):
        inner = (one.name for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
        names = (name for name in inner if name.rpartition(".")[2] not in ("setup", package.__name__))
        for module in (package, *map(importlib.import_module, names)):
            found[module.__name__.removeprefix("amplifier_context_")] = module
    return found


@cache
def source_of(module: ModuleType) -> str:
    return Path(str(module.__file__)).read_text()


@cache
def regexes() -> dict[str, Regex]:
    """Return the patterns of all modules, and those that functions make, by the name of one place that has them."""
    names: dict[re.Pattern[Any], str] = {}
    methods: dict[re.Pattern[Any], set[str]] = {}
    for name, module in modules().items():
        for constant, value in vars(module).items():
            for pattern in value if isinstance(value, tuple | list) else [value]:
                if not isinstance(pattern, re.Pattern):
                    continue
                names.setdefault(pattern, f"{name}.{constant}")
                methods.setdefault(pattern, set()).update(_methods_of(constant, source_of(module)))
    found = {name: Regex(pattern, frozenset(methods[pattern]) or _ANY) for pattern, name in names.items()}
    for name, (module, call) in MAKERS.items():
        found |= {f"{name} {number}": Regex(one, _ANY) for number, one in enumerate(_made_by(module, call))}
    return found


_ANY = frozenset({"search"})  # a pattern that is only handed on


def _methods_of(constant: str, source: str) -> Iterator[str]:
    for method in re.findall(rf"(?<![\w.]){constant}\.(\w+)", source):
        if method in _CALLS:
            yield "search" if method in _SEARCHES else method


def makers() -> Iterator[str]:
    """Yield the functions that call `re`, by module and name."""
    for name, module in modules().items():
        lines = source_of(module).splitlines()
        for function, inside in _functions(ast.parse(source_of(module)), name):
            if _CALL.search("\n".join(lines[inside.lineno - 1 : inside.end_lineno])):
                yield function


def _functions(tree: ast.AST, name: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{name}.{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}.{node.name}", node


def _made_by(module: ModuleType, call: Callable[[], object]) -> list[re.Pattern[Any]]:
    """Return the patterns that a function of a module makes in a call."""
    made: list[re.Pattern[Any]] = []

    def noted(real: Callable[..., object], pattern: str, *arguments: Any) -> object:
        made.append(re.compile(pattern, *(arguments if real is re.compile else ())))
        return real(pattern, *arguments)

    recorder = {name: partial(noted, getattr(re, name)) for name in _CALLS}
    setattr(module, "re", SimpleNamespace(**{**vars(re), **recorder}))  # noqa: B010
    try:
        call()
    finally:
        setattr(module, "re", re)  # noqa: B010
    return made
