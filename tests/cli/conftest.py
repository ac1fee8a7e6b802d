"""A home of its own for every test of a command, and the store that its commands find."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.cli.kept import fill
from tests.places import parameters


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own: commands look into what hosts keep there."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture(params=parameters("jsonl", soak=["sqlite"]))
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store, which commands use if they name no other."""
    url = f"{request.param}:{tmp_path / ('sessions' if request.param == 'jsonl' else 'sessions.db')}"
    monkeypatch.setenv("AMPLIFIER_CONTEXT_STORE", url)
    return url


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A store with two sessions, by its scheme: made once, for tests to copy."""

    @cache
    def made(scheme: str) -> Path:
        kept = tmp_path_factory.mktemp(scheme) / "sessions"
        for name, messages, seed in (("one", 120, 1), ("two", 40, 2)):
            fill(f"{scheme}:{kept}", name, messages, seed)
        return kept

    return made


@pytest.fixture
def filled(url: str, template: Callable[[str], Path]) -> str:
    scheme, _, path = url.partition(":")
    kept = template(scheme)
    if kept.is_dir():
        shutil.copytree(kept, path)
    else:
        shutil.copy2(kept, path)
    return url
