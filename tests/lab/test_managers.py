"""Managers by name, and what is not there."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from amplifier_context_testing import ListContext
from lab import Unavailable, manager
from lab.managers import Opened

from .scripted import scale, user


def listing(config: dict[str, Any]) -> ListContext:
    """A factory, as a dotted path names one."""
    made = ListContext()
    made.messages = [user(str(config.get("first", "")))]
    return made


async def opened(spec: str, **more: Any) -> Opened:
    return await manager(spec, **more).open(scale(), 1_000)


@pytest.mark.parametrize(
    "spec", ["context-simple:target_usage=0.4,strict=true", 'context-simple:{"target_usage": 0.4, "strict": true}']
)
async def test_a_module_is_mounted_with_its_config(spec: str) -> None:
    context: Any = (await opened(spec)).context
    assert context.config.target_usage == 0.4
    assert context.config.strict is True


async def test_a_dotted_path_is_called_with_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lab_made", sys.modules[__name__])
    context: Any = (await opened("lab_made:listing:first=hello")).context
    assert context.messages == [user("hello")]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("context-simpel", "there is no context manager 'context-simpel'.*context-simple.*unlimited"),
        ("no_such_module:make", "cannot be loaded"),
        ("amplifier_context_simple:MODULE", "is not callable"),
    ],
)
def test_what_cannot_be_had_says_so(spec: str, expected: str) -> None:
    with pytest.raises(Unavailable, match=expected):
        manager(spec)
