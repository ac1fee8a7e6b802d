"""The manager of a test: the one whose chapters rules write, or the one whose chapters a model may write.

What holds of the one holds of the other: `tests/manager` and `tests/durable` run over both. The manager of
context-persistent is that of context-simple on another store.
"""

from collections.abc import Generator
from typing import Any, Literal

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.config import Config
from amplifier_context_summary.config import SummaryConfig, load_summary_config
from amplifier_context_summary.manager import SummaryManager
from tests.writers import Writer

Author = Literal["digest", "summary"]  # of chapters
AUTHORS: list[Any] = ["digest", pytest.param("summary", marks=pytest.mark.kernel)]  # models have the kernel's types

_ASKING: dict[str, Any] = {"summary_spend": 1_000.0, "max_summary_calls": 1_000}  # small sessions have little money
_author: Author = "digest"
_has_model = True


def managers_of(request: pytest.FixtureRequest) -> Generator[Author]:
    """Make the managers of a test as its parameter says. For a test that is marked `digest` no model is mounted."""
    global _author, _has_model
    _author = getattr(request, "param", "digest")
    _has_model = request.node.get_closest_marker("digest") is None
    yield _author
    _author = "digest"


def make_manager(config: Config | dict[str, Any] | None = None, **parts: Any) -> ContextManager:
    """Return a manager of a test.

    Args:
        config: keys, or settings, such as those of a manager that was made here.
        parts: of the manager: store, session id and so on.
    """
    if _author == "digest":
        return ContextManager(config if isinstance(config, Config) else load_config(config), **parts)
    if isinstance(config, SummaryConfig):
        settings = config
    else:
        given = config.model_dump(exclude_unset=True) if isinstance(config, Config) else config or {}
        settings = load_summary_config({**_ASKING, **given})
    writer = Writer("good")
    mounted = {writer.name: writer} if _has_model else {}
    return SummaryManager(settings, providers=lambda: mounted, **parts)
