"""Plug-ins: found by name, named when they fail, and never able to harm what they watch."""

import importlib.metadata
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ConfigError, ContextManager, PluginError, Plugins, hookimpl, load_config
from amplifier_context_core.plugins import Observers
from amplifier_context_core.transcript.entry import Entry
from tests.messages import says, user

STRATEGIES = "amplifier_context_strategies"


def plugin(point: str, work: Any) -> Any:
    """A plug-in of one hook."""
    return type("Plugin", (), {point: hookimpl(work)})()


def offers(offered: Any) -> Any:
    """A plug-in that offers strategies, or fails to."""

    def strategies(self: object) -> Any:
        if isinstance(offered, Exception):
            raise offered
        return offered

    return plugin(STRATEGIES, strategies)


def watcher(seen: list[str]) -> Any:
    return plugin("amplifier_context_cleared", lambda self, session_id: seen.append(session_id))


def clear(plugins: Plugins) -> None:
    """Tell observers, of which none may fail."""
    Observers(plugins, pytest.fail).notify("amplifier_context_cleared", session_id="s")


# -- registering -------------------------------------------------------------------------------------------------------
UNSPECIFIED = plugin("amplifier_context_never_heard_of", lambda self: None)


@pytest.mark.parametrize("bad", [UNSPECIFIED, plugin("amplifier_context_cleared", lambda self, no_such_argument: None)])
def test_a_plug_in_that_does_not_fit_the_points_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(PluginError, match="my-plugin"):
        Plugins().register(bad, "my-plugin")


class Unmarked:
    def amplifier_context_cleared(self) -> None:
        """Miss the mark."""


@pytest.mark.parametrize(
    ("bad", "reason"), [(Unmarked(), "cleared is not marked with `hookimpl`"), (Unmarked, "class")]
)
def test_a_plug_in_of_which_nothing_would_be_called_is_refused(bad: object, reason: str) -> None:
    with pytest.raises(PluginError, match=f"plug-in 'mine' cannot be registered: .*{reason}"):
        Plugins().register(bad, "mine")


def test_a_name_is_given_once_and_the_first_keeps_it() -> None:
    plugins, seen = Plugins(), list[str]()
    first = watcher(seen)
    plugins.register(first, "same")
    with pytest.raises(PluginError, match="same"):
        plugins.register(watcher([]), "same")
    with pytest.raises(PluginError, match="other"):
        plugins.register(first, "other")
    clear(plugins)
    assert seen == ["s"]


def broken() -> Any:
    raise ImportError("no module")


def test_of_installed_plug_ins_those_that_fail_to_load_are_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = list[str]()
    loads = {"broken": broken, "odd": lambda: UNSPECIFIED, "good": lambda: watcher(seen)}
    points = [SimpleNamespace(name=name, value=name, load=load) for name, load in loads.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points * (group == "amplifier_context"))
    plugins = Plugins()
    with caplog.at_level(logging.WARNING):
        plugins.load_installed()
        plugins.load_installed()
    warnings = [record.getMessage() for record in caplog.records]
    assert "plug-in broken (broken) is left out: it failed (ImportError at " in warnings[0]
    assert "plug-in odd " in warnings[1]
    assert "amplifier_context_never_heard_of" in warnings[1]
    clear(plugins)
    assert seen == ["s"]


# -- making ------------------------------------------------------------------------------------------------------------
def test_a_plug_in_whose_offers_are_no_offers_does_not_hide_the_others_and_the_last_wins() -> None:
    for later, made in ((RuntimeError("no"), 1), (5, 1), (["mine"], 1), ({"mine": lambda: 2}, 2)):
        plugins = Plugins()
        for number, offered in enumerate(({"mine": lambda: 1}, later)):
            plugins.register(offers(offered), f"plugin-{number}")
        assert plugins.make(STRATEGIES, "mine", "ladder[0]", {"builtin": dict}) == made


# -- watching ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "value", "point"),
    [
        ("token_counter", "mine", "amplifier_context_token_counters"),
        ("search_index", "mine", "amplifier_context_search_indexes"),
        ("ladder", ["mine"], STRATEGIES),
    ],
)
def test_a_plug_in_that_makes_the_wrong_thing_or_fails_is_refused_at_once(key: str, value: Any, point: str) -> None:
    for number, (offered, error) in enumerate(
        ((lambda: 5, f"{key}.*: 'mine' made a int"), (lambda: 1 // 0, f"{key}.*: plug-in odd-1 failed"))
    ):
        plugins = Plugins()
        plugins.register(plugin(point, lambda self, offered=offered: {"mine": offered}), f"odd-{number}")
        with pytest.raises((ConfigError, PluginError), match=error):
            ContextManager(load_config({key: value}), plugins=plugins)


async def test_an_observer_can_neither_rewrite_history_nor_keep_a_message_out_by_failing() -> None:
    def vandalise(self: object, entry: Entry) -> None:
        entry.message["content"] = "VANDALISED"
        raise RuntimeError("the words of a message, perhaps")

    watched = Plugins()
    watched.register(plugin("amplifier_context_appended", vandalise), "vandal")
    manager = ContextManager(load_config({"token_counter": "heuristic"}), plugins=watched)
    await manager.add_message(user("as it was"))
    await manager.set_messages([*(await manager.get_messages()), says("also")])
    assert [message["content"] for message in await manager.get_messages()] == ["as it was", "also"]
