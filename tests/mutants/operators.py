"""Single-line mutants of a source text: each replaces one span of one line. Pure: no I/O."""

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

SWAPPED = {
    ast.Compare: {
        "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
        "in": "not in", "not in": "in", "is": "is not", "is not": "is",
    },
    ast.BinOp: {"+": "-", "-": "+", "*": "//", "/": "*", "//": "*", "%": "*", "|": "&", "&": "|"},
    ast.BoolOp: {"and": "or", "or": "and"},
}  # fmt: skip
# Of these no mutant is seen in what the code does: types, what a class is made of, the texts of errors. Positions in an
# f-string are wrong before Python 3.12.
_SKIPPED = ("annotation", "returns", "decorator_list", "bases")
_SKIPPED_NODES = (ast.JoinedStr, ast.Assert, ast.Raise)
_OPERATOR = re.compile(r"[\s)]*([<>=!+*/%|&-]+|not\s+in|is\s+not|in|is|and|or)[\s(]*(?:#.*)?")
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)

Span = tuple[str, int, int, int, str]  # operator, line, columns from and to, new text
Parents = tuple[ast.AST, ...]  # from the module down


@dataclass(frozen=True)
class Mutant:
    """One changed span. The first five fields are its identity, which outlives lines that move."""

    file: str  # from the root of the repository
    within: str  # qualified name of the innermost function or class; "" is the module
    text: str  # the line, without indentation
    operator: str
    nth: int  # among the mutants that are alike in all of these
    name: str  # of the constant, field or function, if the line runs only when the module is imported
    statement: int  # its first line
    line: int  # from 1
    start: int  # columns, in characters
    end: int
    new: str

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.file, self.within, self.text, self.operator, self.nth

    @property
    def room(self) -> str:
        return self.file.split("/")[1]

    def rank(self, seed: int) -> bytes:
        """A random place among all mutants, which does not depend on the others."""
        return hashlib.sha256(repr((seed, self.key)).encode()).digest()

    def applied(self, source: str) -> str:
        lines = source.split("\n")
        old = lines[self.line - 1]
        lines[self.line - 1] = old[: self.start] + self.new + old[self.end :]
        return "\n".join(lines)


def mutants_of(file: str, source: str) -> list[Mutant]:
    text = _Text(source)
    found = [(span, node, parents) for node, parents in _nodes(ast.parse(source), ()) for span in text.spans(node)]
    alike: Counter[tuple[str, str, str]] = Counter()
    mutants: list[Mutant] = []
    for (operator, line, start, end, new), node, parents in sorted(found, key=lambda each: each[0][1:]):
        at = max(index for index, each in enumerate((*parents, node)) if isinstance(each, ast.stmt))
        statement: Any = (*parents, node)[at]
        name = "" if any(isinstance(each, _FUNCTION) for each in parents[:at]) else _name_of(statement)
        kind = (_within(parents), text.lines[line - 1].strip(), operator)
        mutants.append(Mutant(file, *kind, alike[kind], name, statement.lineno, line, start, end, new))
        alike[kind] += 1
    return mutants


def compiles(source: str) -> bool:
    try:
        compile(source, "<mutant>", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _nodes(node: ast.AST, parents: Parents) -> Iterator[tuple[ast.AST, Parents]]:
    if isinstance(node, _SKIPPED_NODES) or _is_static(node):
        return
    yield node, parents
    for name, value in ast.iter_fields(node):
        if name not in _SKIPPED and not (name == "keywords" and isinstance(node, ast.ClassDef)):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _nodes(child, (*parents, node))


class _Text:
    """Finds spans in a source."""

    def __init__(self, source: str) -> None:
        self.lines = source.split("\n")

    def spans(self, node: ast.AST) -> Iterator[Span]:
        match node:
            case ast.Compare():
                yield from self._between([node.left, *node.comparators], SWAPPED[ast.Compare])
            case ast.BoolOp():
                yield from self._between(node.values, SWAPPED[ast.BoolOp])
            case ast.BinOp() if not (_is_text(node.left) or _is_text(node.right)):
                yield from self._between([node.left, node.right], SWAPPED[ast.BinOp])
            case ast.UnaryOp(op=ast.Not()):
                yield from self._whole(node, "drop not", lambda text: text.removeprefix("not").lstrip())
            case ast.Constant(value=bool()):
                yield from self._whole(node, "flip", lambda text: str(text != "True"))
            case ast.Constant(value=int()):
                yield from self._whole(node, "+1", lambda text: f"({text} + 1)")
                yield from self._whole(node, "-1", lambda text: f"({text} - 1)")
            case ast.If() | ast.While() | ast.IfExp():
                if not isinstance(node.test, ast.Compare | ast.Constant | ast.UnaryOp):  # those have other operators
                    yield from self._whole(node.test, "negate", lambda text: f"(not ({text}))")
            case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
                yield from self._whole(value, "return None", lambda _: "None")
            case ast.Expr(value=ast.Call() | ast.Await()) if not ast.unparse(node).startswith("log."):
                yield from self._whole(node, "drop call", lambda _: "pass")
            case ast.Break() | ast.Continue():
                new = "continue" if isinstance(node, ast.Break) else "break"
                yield from self._whole(node, new, lambda _: new)
            case _:
                pass

    def _whole(self, node: Any, operator: str, change: Callable[[str], str]) -> Iterator[Span]:
        if node.lineno == node.end_lineno:
            start, end = self._column(node.lineno, node.col_offset), self._column(node.lineno, node.end_col_offset)
            yield operator, node.lineno, start, end, change(self.lines[node.lineno - 1][start:end])

    def _between(self, operands: list[ast.expr], table: dict[str, str]) -> Iterator[Span]:
        """The operators between neighbours, if they are on the line of one of them."""
        for left, right in pairwise(operands):
            last: Any = left.end_lineno
            for line in dict.fromkeys((last, right.lineno)):
                start = self._column(line, left.end_col_offset) if line == last else 0
                end = self._column(line, right.col_offset) if line == right.lineno else None
                found = _OPERATOR.fullmatch(self.lines[line - 1][start:end])
                if found and (old := " ".join(found[1].split())) in table:
                    yield f"{old} → {table[old]}", line, start + found.start(1), start + found.end(1), table[old]

    def _column(self, line: int, offset: int | None) -> int:
        """ast counts bytes."""
        return len(self.lines[line - 1].encode()[:offset].decode())


def _within(parents: Parents) -> str:
    return ".".join(each.name for each in parents if isinstance(each, (*_FUNCTION, ast.ClassDef)))


def _name_of(statement: ast.stmt) -> str:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case _:
            return ""


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_static(node: ast.AST) -> bool:
    """True of what only type checkers or the import system read."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.Assign) and any(ast.unparse(target).startswith("__") for target in node.targets)
