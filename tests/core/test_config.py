"""Config and errors: keys of the modules we replace are accepted, errors name the way out and quote no message."""

import logging
import re
import shlex
import sys
from typing import Any

import pytest

from amplifier_context_core import (
    ContextError,
    ContextManager,
    ContextOverflow,
    InvalidMessage,
    PinRefused,
    PluginError,
    Plugins,
    StoreError,
    open_store,
)
from amplifier_context_core.amounts import amount_in
from amplifier_context_core.config import DURABLE, WITHOUT_MEANING, Config, load_config
from amplifier_context_core.errors import ConfigError, install_command
from amplifier_context_persistent import PersistentConfig
from tests.replaced import REPLACED


@pytest.mark.parametrize("key", REPLACED)
def test_a_key_of_the_replaced_modules_is_accepted_also_strictly(key: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_config({key: REPLACED[key], "strict_config": True})
    assert caplog.records == []


def test_the_contracts_spelling_of_the_threshold_is_understood_and_beside_it_ours_counts_in_any_order() -> None:
    assert load_config({"compaction_threshold": 0.7}).compact_threshold == 0.7
    assert load_config({"compaction_threshold": 0.7, "compact_threshold": 0.8}).compact_threshold == 0.8
    assert load_config({"compact_threshold": 0.8, "compaction_threshold": 0.7}).compact_threshold == 0.8
    assert load_config({"compact_threshold": None, "compaction_threshold": 0.7}).compact_threshold == 0.7


def test_null_is_not_written_and_numbers_written_as_text_are_numbers() -> None:
    config = load_config(dict.fromkeys([*Config.model_fields, *REPLACED, "compaction_threshold", "never_seen"]))
    assert config == load_config({})
    assert config.model_fields_set == set()
    config = load_config({"max_tokens": "50000", "compact_threshold": "0.8", "auto_compact": "false"})
    assert (config.max_tokens, config.compact_threshold, config.auto_compact) == (50_000, 0.8, False)


@pytest.mark.parametrize(
    ("key", "hints"),
    [
        ("compact_treshold", ["'compact_treshold'", "did you mean 'compact_threshold'"]),
        ("zzzzzz", ["'zzzzzz'"]),
        (True, ["'True'"]),  # YAML 1.1 reads a bare `on:` as true: that must not end the host's session
    ],
)
def test_an_unknown_key_is_a_warning_that_names_the_nearest_known(
    key: Any, hints: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        load_config({key: 1}, module="context-simple")
    (record,) = caplog.records
    assert all(part in record.getMessage() for part in ("context-simple", *hints))
    assert ("did you mean" in record.getMessage()) == (len(hints) > 1)


@pytest.mark.parametrize("strict", [True, "true"])
def test_under_strict_config_an_unknown_key_is_an_error(strict: Any) -> None:
    with pytest.raises(ConfigError, match="unknown key of context-simple; did you mean 'max_tokens'") as caught:
        load_config({"max_token": 1, "strict_config": strict}, module="context-simple")
    assert caught.value.key == "max_token"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"storage_path": "x", "auto_save": True}, "auto_save, storage_path"),
        ({"compaction_strategy": "summary"}, "context-summary"),
    ],
)
def test_keys_without_meaning_are_named_once_in_one_line_and_the_module_that_summarises(
    config: dict[str, Any], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        load_config(config, module="context-simple")
    (record,) = (one for one in caplog.records if named in one.getMessage())
    assert "context-simple" in record.getMessage()
    assert record.levelno == logging.INFO


@pytest.mark.parametrize("key", sorted(DURABLE))
def test_a_key_of_the_durable_module_is_reported_as_that_in_a_module_that_keeps_nothing(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert set(PersistentConfig.model_fields) - set(Config.model_fields) - WITHOUT_MEANING == DURABLE
    warning = "it is a key of context-persistent, not of context-simple"
    with caplog.at_level(logging.WARNING):
        load_config({key: "x"}, module="context-simple")
    assert warning in caplog.records[0].getMessage()
    with pytest.raises(ConfigError, match=warning):
        load_config({key: "x", "strict_config": True}, module="context-simple")


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("max_tokens", 0, "at least 1"),
        ("max_tokens", 10**30, "below"),
        ("compact_threshold", float("nan"), "above 0.* at most 1"),
        ("target_usage", 0, "above 0.* below 1"),
        ("truncate_chars", 0, "at least 1"),
        ("max_tool_result_bytes", 10, "at least 200"),
        ("chapter_share", 1, "above 0.* below 1"),
        ("token_meter", "guess", "'estimate', 'actual' or 'hybrid'"),
        ("auto_compact", "perhaps", "boolean"),
        ("ladder", "fold", "list"),
        ("max_tokens", "16k", "write 16000$"),
        ("clear_at_least", "32,000", "write 32000$"),
    ],
)
def test_an_impossible_value_is_an_error_with_key_value_and_range(key: str, value: Any, wanted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({key: value})
    assert caught.value.key == key
    text = str(caught.value)
    assert text.startswith(f"{key}: {value!r} ")
    assert re.search(wanted, text)
    assert "pydantic" not in text


def test_what_is_no_mapping_is_an_error_and_a_value_that_repeats_itself_over_and_over_is_named_in_short() -> None:
    value: object = "x"
    for _ in range(40):
        value = [value] * 10
    for config, words in (
        (["max_tokens"], "keys with values"),
        (5, "keys with values"),
        ({"max_tokens": value}, "max_"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(config)  # type: ignore[arg-type]


def test_a_target_at_or_above_the_threshold_is_an_error_but_a_low_threshold_alone_brings_its_own() -> None:
    """A config the replaced module took: the user never asked for a target above the threshold."""
    for target in (0.95, 0.97):
        with pytest.raises(ConfigError, match=rf"{target}.*compact_threshold \(0.95\)") as caught:
            load_config({"target_usage": target})
        assert caught.value.key == "target_usage"
    config = load_config({"compact_threshold": 0.4})
    assert config.compact_threshold == 0.4
    assert 0 < config.target_usage < 0.4
    assert load_config({"compaction_threshold": 0.5}).target_usage < 0.5


def test_an_amount_is_a_whole_number_however_it_is_abbreviated() -> None:
    for text, number in (("32000", 32_000), ("32,000", 32_000), (" 32k ", 32_000), ("0.2m", 200_000)):
        assert amount_in(text) == number
    for text in ("0.0001k", "-5k", "lots", "9" * 31, "٣٢"):  # the first is no whole number
        assert amount_in(text) is None


# -- errors: one tree, and nothing in it that repeats what a message says ----------------------------------------------
SECRET = "hunter2-SECRET"


@pytest.mark.parametrize("kind", [InvalidMessage, ConfigError, PinRefused, ContextOverflow, PluginError, StoreError])
def test_every_error_is_caught_by_the_base_and_those_about_an_argument_are_value_errors(kind: type[Exception]) -> None:
    assert issubclass(kind, ContextError)
    assert issubclass(kind, ValueError) is (kind in (InvalidMessage, ConfigError, PinRefused))


async def failing() -> str:
    raise RuntimeError(SECRET)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda manager: manager.get_messages_for_request(token_budget=60), "60"),
        (lambda manager: manager.pin("m2"), r"m2 has .* tokens"),
        (lambda manager: manager.request_retention(retain_contents=[SECRET]), "not in the history"),
        (lambda manager: prompted(manager), "RuntimeError"),
    ],
    ids=["overflow", "pin", "retention", "prompt factory"],
)
async def test_an_error_of_a_session_is_reported_in_marks_kinds_and_sizes_without_content(ask: Any, words: str) -> None:
    config = load_config({"strict": True, "max_tokens": 100, "token_counter": "heuristic"})
    manager = ContextManager(config, plugins=Plugins())
    await manager.add_message({"role": "system", "content": f"{SECRET} " * 200})
    await manager.add_message({"role": "user", "content": f"{SECRET} " * 200})
    with pytest.raises((ContextError, ValueError), match=words) as caught:
        await ask(manager)
    assert SECRET not in str(caught.value)


async def prompted(manager: ContextManager) -> None:
    await manager.set_system_prompt_factory(failing)
    await manager.get_messages_for_request(token_budget=1_000)


@pytest.mark.parametrize("url", [f"nosuch://anna:{SECRET}@db.example.com/x", f"//anna={SECRET}@db.example.com/x"])
def test_a_url_of_a_store_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url, Plugins())
    assert SECRET not in str(caught.value)


def test_the_command_that_installs_an_extra_can_be_pasted_whatever_the_path_of_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/it's my/python3")
    command = ["/opt/it's my/python3", "-m", "pip", "install", "amplifier-context-core[vectors]"]
    assert shlex.split(install_command("vectors")) == command
