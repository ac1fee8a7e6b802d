"""Config: every key of the modules we replace is accepted, and an impossible value is an error that helps."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from amplifier_context_core.config import DURABLE, WITHOUT_MEANING, Config, load_config
from amplifier_context_core.errors import ConfigError
from amplifier_context_persistent import PersistentConfig
from tests.replaced import REPLACED


@pytest.mark.parametrize("key", REPLACED)
def test_a_key_of_the_replaced_modules_is_accepted_also_strictly(key: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_config({key: REPLACED[key], "strict_config": True})
    assert caplog.records == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_tokens", 200_000),
        ("protected_tool_results", 5),
        ("truncate_chars", 250),
        ("auto_compact", True),
        ("output_reserve_fraction", 1.0),
        ("max_tool_result_bytes", 131_072),
    ],
)
def test_these_defaults_are_those_of_the_replaced_module(key: str, value: object) -> None:
    assert getattr(load_config(None), key) == value


# -- spellings, null, defaults ----------------------------------------------------------------------------------------


def test_the_contracts_spelling_of_the_threshold_is_understood() -> None:
    assert load_config({"compaction_threshold": 0.7}).compact_threshold == 0.7


def test_where_both_spellings_are_written_ours_counts_in_any_order() -> None:
    assert load_config({"compaction_threshold": 0.7, "compact_threshold": 0.8}).compact_threshold == 0.8
    assert load_config({"compact_threshold": 0.8, "compaction_threshold": 0.7}).compact_threshold == 0.8
    assert load_config({"compact_threshold": None, "compaction_threshold": 0.7}).compact_threshold == 0.7


def test_null_is_not_written() -> None:
    config = load_config(dict.fromkeys([*Config.model_fields, *REPLACED, "compaction_threshold", "never_seen"]))
    assert config == load_config({})
    assert config.model_fields_set == set()


def test_numbers_written_as_text_are_numbers() -> None:
    config = load_config({"max_tokens": "50000", "compact_threshold": "0.8", "auto_compact": "false"})
    assert (config.max_tokens, config.compact_threshold, config.auto_compact) == (50_000, 0.8, False)


# -- unknown keys -----------------------------------------------------------------------------------------------------


def test_an_unknown_key_is_a_warning_that_names_the_nearest_known(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_config({"compact_treshold": 1}, module="context-simple")
    (record,) = caplog.records
    assert all(part in record.getMessage() for part in ("context-simple", "'compact_treshold'", "'compact_threshold'"))


def test_a_key_like_no_other_is_a_warning_without_a_guess(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_config({"zzzzzz": 1})
    assert "did you mean" not in caplog.records[0].getMessage()


@pytest.mark.parametrize("strict", [True, "true"])
def test_under_strict_config_an_unknown_key_is_an_error(strict: Any) -> None:
    with pytest.raises(ConfigError, match="unknown key of context-simple; did you mean 'max_tokens'") as caught:
        load_config({"max_token": 1, "strict_config": strict}, module="context-simple")
    assert caught.value.key == "max_token"


def test_keys_without_meaning_are_named_once_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        load_config({"storage_path": "x", "auto_save": True}, module="context-simple")
    (record,) = caplog.records
    assert "auto_save, storage_path" in record.getMessage()
    assert record.levelno == logging.INFO


def test_a_key_that_yaml_read_as_no_text_is_an_unknown_one(caplog: pytest.LogCaptureFixture) -> None:
    """YAML 1.1 reads a bare `on:` as true. That must not end the host's session."""
    with caplog.at_level(logging.WARNING):
        load_config({True: 1})
    assert "'True'" in caplog.records[0].getMessage()


@pytest.mark.parametrize("raw", [["max_tokens"], 5])
def test_what_is_no_mapping_is_an_error_that_says_so(raw: Any) -> None:
    with pytest.raises(ConfigError, match="keys with values"):
        load_config(raw)


@pytest.mark.parametrize("key", sorted(DURABLE))
def test_a_key_of_the_durable_module_is_reported_as_that_in_a_module_that_keeps_nothing(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    warning = "it is a key of context-persistent, not of context-simple"
    with caplog.at_level(logging.WARNING):
        load_config({key: "x"}, module="context-simple")
    assert warning in caplog.records[0].getMessage()
    with pytest.raises(ConfigError, match=warning):
        load_config({key: "x", "strict_config": True}, module="context-simple")


def test_the_keys_of_the_durable_module_are_those_it_adds_to_core() -> None:
    assert set(PersistentConfig.model_fields) - set(Config.model_fields) - WITHOUT_MEANING == DURABLE


# -- impossible values ------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("target", [0.95, 0.97])
def test_a_target_at_or_above_the_threshold_is_an_error_with_both(target: float) -> None:
    with pytest.raises(ConfigError, match=rf"{target}.*compact_threshold \(0.95\)") as caught:
        load_config({"target_usage": target})
    assert caught.value.key == "target_usage"


def test_a_low_threshold_alone_brings_its_own_target() -> None:
    """A config the replaced module took: the user never asked for a target above the threshold."""
    config = load_config({"compact_threshold": 0.4})
    assert config.compact_threshold == 0.4
    assert 0 < config.target_usage < 0.4
    assert load_config({"compaction_threshold": 0.5}).target_usage < 0.5


@pytest.mark.parametrize(
    ("written", "number"),
    [("16k", "16000"), ("32,000", "32000")],
)
@pytest.mark.parametrize("key", ["max_tokens", "clear_at_least"])
def test_an_abbreviated_amount_is_an_error_that_gives_the_number_to_write(key: str, written: str, number: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: '{written}' is impossible: write {number}$"):
        load_config({key: written})


def test_compaction_strategy_summary_is_answered_with_the_module_that_summarises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    load_config({"compaction_strategy": "summary"}, module="context-simple")
    [line] = [record.getMessage() for record in caplog.records if "context-summary" in record.getMessage()]
    assert "context-simple" in line


def test_a_value_that_refers_to_itself_over_and_over_is_named_in_short() -> None:
    value: object = "x"
    for _ in range(40):
        value = [value] * 10
    with pytest.raises(ConfigError, match="max_tokens"):
        load_config({"max_tokens": value})
