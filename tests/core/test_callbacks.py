"""Callbacks close circles that no import shows: an object calls the one that made it, or one of a higher layer."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import pytest

from tests.core.test_architecture import MODULES, parsed


@dataclass(frozen=True)
class Members:
    """The names that classes give to methods, those that any of them gives to data, and the bases of each class."""

    methods: Mapping[str, set[str]]
    data: set[str]
    bases: Mapping[str, set[str]]

    @classmethod
    def of(cls, trees: Iterable[ast.Module]) -> Members:
        methods, data = defaultdict[str, set[str]](set), set[str]()
        bases = defaultdict[str, set[str]](set)
        for node in (node for tree in trees for node in ast.walk(tree)):
            if isinstance(node, ast.ClassDef):
                methods[node.name] |= set()
                bases[node.name] |= {ast.unparse(one).split("[")[0] for one in node.bases}
                for part in node.body:
                    if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        is_value = any("property" in ast.dump(one) for one in part.decorator_list)
                        (data if is_value else methods[node.name]).add(part.name)
                    elif isinstance(part, ast.AnnAssign):
                        data.add(ast.unparse(part.target))
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                data.add(node.attr)
        return cls(dict(methods), data, bases)

    def has_method(self, kind: str | None, name: str) -> bool:
        """True if an object of this class, None if it is not known, has a method of this name and no data."""
        if kind is not None:
            return name in self.methods.get(kind, ())
        return name not in self.data and any(name in names for names in self.methods.values())

    def inherits(self, kind: str, name: str) -> bool:
        """True if a class or one that it inherits from has a method of this name."""
        return name in self.methods.get(kind, ()) or any(self.inherits(one, name) for one in self.bases.get(kind, ()))


def product_trees() -> dict[str, ast.Module]:
    """Return the syntax trees of all packages but the one for tests."""
    return {name: parsed(path) for name, (package, path) in MODULES.items() if package != "amplifier_context_testing"}


def callbacks(tree: ast.Module, members: Members) -> list[str]:
    """The lines that give another object a function to call: a lambda, a function, a method, or a part of one.

    If it is of a higher layer, that is a circle which no import shows.
    """
    nodes = list(ast.walk(tree))
    of_classes = {id(part) for node in nodes if isinstance(node, ast.ClassDef) for part in node.body}
    defined = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    functions = {node.name for node in defined if id(node) not in of_classes}
    made = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    kinds = {ast.unparse(one.targets[0]): ast.unparse(cast("ast.Call", one.value).func) for one in made}

    def is_function(value: ast.expr) -> bool:
        match value:
            case ast.IfExp():
                return is_function(value.body) or is_function(value.orelse)
            case ast.Call(func=ast.Name("partial")) | ast.Lambda():
                return True
            case ast.Attribute(value=ast.Call(func=ast.Name(kind))):
                return members.has_method(kind, value.attr)
            case ast.Attribute():
                kind = kinds.get(ast.unparse(value.value))
                return members.has_method(kind if kind in members.methods else None, value.attr)
            case ast.Name():
                return value.id in functions
            case _:
                return False

    found: list[str] = []
    for node in nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value and is_function(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            holders = [ast.unparse(one.value) for one in targets if isinstance(one, ast.Attribute)]
            found.extend(f"{node.lineno}: {ast.unparse(node)}" for holder in holders if holder != "self")
    return found


@pytest.mark.parametrize(
    "line",
    [
        "self.compactor.save = lambda: self._save()",
        "self.compactor.save = self._save",
        "self.compactor.carry = Carriers(self.records).carry",
        "host.closed = host.carry",
        "manager.closed = close if wanted else None",
        "manager.closed: Closed = partial(close, 1)",
    ],
)
def test_a_function_that_another_object_is_given_is_found(line: str) -> None:
    classes = "class Carriers:\n def carry(self): ...\n def _save(self): ...\nclass Part:\n carry: int\n"
    tree = ast.parse(f"{classes}def close(): ...\nhost = Carriers()\n{line}")
    assert callbacks(tree, Members.of([tree])) == [f"8: {line}"]


def test_values_that_another_object_is_given_are_no_callbacks() -> None:
    tree = ast.parse("class Part:\n def end(self): ...\n last: int\n")
    lines = ast.parse("part = Part()\nview.last = part.last\nself.end = part.end\nview.end = last(part)")
    assert callbacks(lines, Members.of([tree])) == []


def test_no_object_is_given_a_function_after_it_was_made() -> None:
    """What a lower layer needs of a higher one it gets as a value, or as an argument of a call."""
    trees = product_trees()
    members = Members.of(trees.values())
    assert [f"{name}:{line}" for name, tree in trees.items() for line in callbacks(tree, members)] == []


def callbacks_to_parts(tree: ast.Module, members: Members) -> set[str]:
    """Return the methods of its own that an object gives to an object which it makes, as ``Part(self.method)``.

    A lambda, a partial or a local function gives what it calls of `self`. A method of another part, such as
    `self.part.method`, closes no circle: that part does not need its maker.
    """
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {one for owner in classes for method in owner.body for one in _given(method, owner.name, members)}


def _given(method: ast.stmt, owner: str, members: Members) -> Iterator[str]:
    """Return what a method of this class gives to the objects that it makes."""
    inside = list(ast.walk(method))
    local = {node.name: node for node in inside[1:] if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}

    def own(value: ast.AST) -> Iterator[str]:
        match value:
            case ast.Attribute(value=ast.Name("self")) if members.inherits(owner, value.attr):
                yield ast.unparse(value)
            case ast.Name() if value.id in local:
                yield from called(local[value.id])
            case ast.Lambda():
                yield from called(value.body)
            case ast.Call(func=ast.Name("partial")):
                yield from (name for one in value.args for name in own(one))
            case ast.IfExp():
                yield from (*own(value.body), *own(value.orelse))
            case _:
                pass

    def called(body: ast.AST) -> Iterator[str]:
        functions = [node.func for node in ast.walk(body) if isinstance(node, ast.Call)]
        yield from (name for one in functions if isinstance(one, ast.Attribute) for name in own(one))

    for call in (node for node in inside if isinstance(node, ast.Call)):
        made = [name for name in ast.unparse(call.func).split(".") if name in members.methods]
        if made:
            values = (*call.args, *(one.value for one in call.keywords))
            yield from (f"{made[-1]}({name})" for value in values for name in own(value))


_READS = "it reads a value that its maker may not have yet"
_RUNS = "it runs the functions that it is given, in its order or its thread"
_COMMITS = "the loop commits through it when the maker has returned; no caller is left that could save after it"
# What an object may give to a part that it makes, and why. Nothing that saves the session, but for a commit: the maker
# awaits the part, and then saves.
MAY_BE_GIVEN = {
    "AppendQueue(self._commit_batch)": _RUNS,
    "AppendQueue(self._start_task)": _RUNS,
    "MeasuredRequest(self.outgoing)": _READS,
    "MicroBatcher(self._append_all)": _RUNS,
    "MicroBatcher(self._change_all)": _RUNS,
    "ReplayDetector(self.snapshot)": _READS,
    "RequestTransaction(self._after_commit)": _COMMITS,
    "RequestTransaction(self._handed_out)": _COMMITS,
    "SqliteWorker(self._settle)": _RUNS,
    "StoredTranscript(self._count)": _READS,
    "Task(self._alone)": _RUNS,
    "Task(self._close)": _RUNS,
    "Task(self._commit)": _RUNS,
    "Task(self._resume_erasing)": _RUNS,
    "Writer(self._last_request)": _READS,
    "Writer(self.token_counter)": _READS,
}


@pytest.mark.parametrize(
    "value",
    [
        "self._save",
        "save=self._save",
        "lambda: self._save()",
        "partial(self._save, 1)",
        "self._save if wanted else None",
        "later",
    ],
)
def test_a_method_that_a_part_is_given_is_found(value: str) -> None:
    """Also where the part has a field of the same name, and where the method is inherited."""
    classes = "class Part:\n _save: int\nclass Base:\n async def _save(self): ...\nclass Manager(Base):\n"
    made = f" def __init__(self):\n  async def later():\n   await self._save()\n  self.part = Part({value})"
    tree = ast.parse(classes + made)
    assert callbacks_to_parts(tree, Members.of([tree])) == {"Part(self._save)"}


def test_values_and_methods_of_other_parts_are_no_callbacks_to_the_maker() -> None:
    classes = "class Part:\n def note(self): ...\nclass Manager:\n size: int\n def count(self): ...\n"
    made = " def make(self):\n  return Part(self.size, self.count(), self.part.note, lambda: self.part.note(), len)"
    tree = ast.parse(classes + made)
    assert callbacks_to_parts(tree, Members.of([tree])) == set()


def test_no_part_is_given_a_method_of_its_maker_without_a_reason() -> None:
    """Imports do not show this circle: maker, part, maker."""
    trees = product_trees()
    members = Members.of(trees.values())
    assert {one for tree in trees.values() for one in callbacks_to_parts(tree, members)} == set(MAY_BE_GIVEN)
