"""Config and errors: keys of the modules we replace are accepted, errors name the way out and quote no message."""

import logging
import re
from typing import Any

import pytest

from amplifier_context_core import ContextError, ContextManager, Plugins, open_store
from amplifier_context_core.amounts import amount_in
from amplifier_context_core.config import DURABLE, WITHOUT_MEANING, Config, load_config
from amplifier_context_core.errors import ConfigError
from amplifier_context_persistent import PersistentConfig
from tests.replaced import REPLACED


def test_keys_of_the_replaced_modules_are_accepted_also_strictly(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for key, value in REPLACED.items():
            load_config({key: value, "strict_config": True})
    assert caplog.records == []
    with caplog.at_level(logging.INFO):  # those without meaning are named once, and the module that summarises
        load_config({"storage_path": "x", "auto_save": True, "compaction_strategy": "summary"})
    assert all(part in caplog.text for part in ("auto_save, ", "storage_path", "context-summary"))


def test_the_contracts_spelling_of_the_threshold_is_understood_and_beside_it_ours_counts_in_any_order() -> None:
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
    with pytest.raises(ConfigError, match="unknown key of context-simple"):
        load_config({key: 1, "strict_config": "true"}, module="context-simple")


def test_keys_of_the_durable_module_are_reported_as_that_in_a_module_that_keeps_nothing() -> None:
    assert set(PersistentConfig.model_fields) - set(Config.model_fields) - WITHOUT_MEANING == DURABLE
    with pytest.raises(ConfigError, match="it is a key of context-persistent, not of context-simple"):
        load_config({min(DURABLE): "x", "strict_config": True}, module="context-simple")


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("max_tokens", 0, "at least 1"),
        ("max_tokens", 10**30, "below"),
        ("compact_threshold", float("nan"), "above 0.* at most 1"),
        ("chapter_share", 1, "above 0.* below 1"),
        ("token_meter", "guess", "'estimate', 'actual' or 'hybrid'"),
        ("ladder", "fold", "list"),
        ("clear_at_least", "32,000", "write 32000$"),
        ("cache_ttl", "5m", "write 300$"),
        ("cache_ttl", "1h", "write 3600$"),
        ("cache_ttl", "\u0665m", "a valid integer"),
    ],
)
def test_an_impossible_value_is_an_error_with_key_value_and_range(key: str, value: Any, wanted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({key: value})
    assert caught.value.key == key
    text = str(caught.value)
    assert text.startswith(f"{key}: {value!r} ")
    assert re.search(wanted, text)


def test_what_is_no_mapping_is_an_error_and_a_value_that_repeats_itself_over_and_over_is_named_in_short() -> None:
    value: object = "x"
    for _ in range(40):
        value = [value] * 10
    for config, words in ((["max_tokens"], "keys with values"), ({"max_tokens": value}, "max_")):
        with pytest.raises(ConfigError, match=words):
            load_config(config)  # type: ignore[arg-type]


def test_a_target_at_or_above_the_threshold_is_an_error_but_a_low_threshold_alone_brings_its_own() -> None:
    """A config the replaced module took: the user never asked for a target above the threshold."""
    with pytest.raises(ConfigError, match=r"0.95.*compact_threshold \(0.95\)"):
        load_config({"target_usage": 0.95})
    assert 0 < load_config({"compact_threshold": 0.4}).target_usage < 0.4
    assert load_config({"compaction_threshold": 0.5}).target_usage < 0.5


def test_an_amount_is_a_whole_number_however_it_is_abbreviated() -> None:
    for text, number in (("32000", 32_000), ("32,000", 32_000), (" 32k ", 32_000), ("0.2m", 200_000)):
        assert amount_in(text) == number
    for text in ("0.0001k", "-5k", "lots", "9" * 31, "\u0663\u0662"):  # the first is no whole number
        assert amount_in(text) is None


# -- errors: one tree, and nothing in it that repeats what a message says ----------------------------------------------
SECRET = "hunter2-SECRET"


async def prompted(manager: ContextManager) -> None:
    async def failing() -> str:
        raise RuntimeError(SECRET)

    await manager.set_system_prompt_factory(failing)
    await manager.get_messages_for_request(token_budget=1_000)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda manager: manager.get_messages_for_request(token_budget=60), "60"),
        (lambda manager: manager.pin("m2"), r"m2 has .* tokens"),
        (lambda manager: manager.request_retention(retain_contents=[SECRET]), "not in the history"),
        (prompted, "RuntimeError"),
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


def test_a_url_of_a_store_is_refused_without_its_password() -> None:
    for url in (f"nosuch://anna:{SECRET}@db.example.com/x", f"//anna={SECRET}@db.example.com/x"):
        with pytest.raises(ConfigError) as caught:
            open_store(url, Plugins())
        assert SECRET not in str(caught.value)
