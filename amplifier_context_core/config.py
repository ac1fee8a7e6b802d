"""Configuration: the keys of the replaced modules, and further ones.

A failing context mount ends the host's session, so most faults are tolerated. A key without effect here is named once
in the log. An unknown key is a warning that names the nearest known one. Only a known key with an impossible value is
an error, which names key, value and range.
"""

from __future__ import annotations

import difflib
import logging
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from .amounts import amount_in, seconds_in
from .errors import ConfigError

log = logging.getLogger(__name__)

# Keys of the replaced modules and of hosts' configs that have no effect here (docs/kernel.md).
WITHOUT_MEANING = frozenset(
    {
        "auto_save",
        "compaction_notice_enabled",
        "compaction_notice_min_level",
        "compaction_notice_token_reserve",
        "compaction_notice_verbosity",
        "compaction_strategy",
        "max_messages",
        "memory_files",
        "storage_path",
        "summarization_model",
        "summarization_prompt_path",
        "summarization_timeout_s",
        "summary_trigger",
        "transcript_path",
        "truncate_boundary",
    }
)
# Keys of modules with a store. In another module they would promise a durable history that it does not keep.
DURABLE = frozenset({"archive", "durability", "notes", "notes_tokens", "store"})
_NUMBERS: tuple[object, ...] = (int, float, int | None)
_shortened = reprlib.Repr()  # of any value: the whole text of a nested one may not fit into memory
_shortened.maxstring = _shortened.maxother = 200
SPELLINGS = {"compaction_threshold": "compact_threshold"}  # the contract's spelling


class Config(BaseModel):
    """Settings of a context manager. Shares are of the budget unless stated otherwise."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    max_tokens: int = Field(
        200_000, ge=1, description="tokens to use when the provider reports no window; also an upper limit when set"
    )
    compact_threshold: float = Field(
        0.95, gt=0, le=1, description="share above which a view is compacted; with `cadence: auto` the latest moment"
    )
    target_usage: float = Field(
        0.50, gt=0, lt=1, description="share that a compaction aims at, at most; often less, as whole rounds fold"
    )
    protected_recent: float = Field(
        0.45, ge=0, le=1, description="share of the target that the newest rounds keep, while older ones can go"
    )
    protected_human: float = Field(
        0.40, ge=0, le=1, description="share of the target that people's messages keep, but in the last passes"
    )
    protected_tool_results: int = Field(
        5, ge=0, description="newest tool rounds whose outputs stay, at most; fewer if they fold"
    )
    truncate_chars: int = Field(250, ge=1, description="characters an old tool output is clipped to")
    cadence: Literal["fixed", "auto"] = Field(
        "fixed",
        description="fixed: compact at `compact_threshold`; auto: when reading the growth of the view from the cache "
        "has cost as much as writing the changed prefix will",
    )
    cache_ttl: int | None = Field(
        None,
        ge=0,
        description="seconds that the provider keeps a cached prefix after its last use, 0: for ever; by default as "
        "known of the provider",
    )
    auto_compact: bool = Field(True, description="false: only the hard limit compacts")
    output_reserve_fraction: float = Field(
        1.0, ge=0, le=1, description="share of the model's longest answer that is kept free"
    )
    safety_margin: int = Field(1_000, ge=0, description="further tokens of the window that are kept free")
    token_meter: Literal["estimate", "actual", "hybrid"] = Field(
        "hybrid",
        description="estimate: do not learn from reported usage; actual: let loops have each request counted by its "
        "provider first, where it can",
    )
    max_tool_result_bytes: int = Field(131_072, ge=200, description="bytes a tool output shows at most, at any age")
    clear_at_least: int | None = Field(
        None, ge=0, description="tokens a compaction must free; default 5 % of the budget"
    )
    ladder: list[str | dict[str, dict[str, Any]]] | None = Field(None, min_length=1, description="strategies, in order")
    output_share: float = Field(0.20, gt=0, le=1, description="share one tool output may fill, at any age")
    offload_above: float = Field(
        1.0, gt=0, description="share above which a description, head and tail are shown in place of a tool output"
    )
    chapter_share: float = Field(
        0.60, gt=0, lt=1, description="share chapters may fill at most, however much they replace"
    )
    json_tables: bool = Field(
        True, description="tool outputs in JSON: lines of texts as lines, large ones as tables, nothing left out"
    )
    fewer_line_numbers: bool = Field(
        True, description="of lines that a tool numbers, the first, each tenth and the last keep their numbers"
    )
    recall_share: float = Field(
        0.30, ge=0, le=1, description="share of the room above the target that recalls fill between two compactions"
    )
    pool_limit: int | None = Field(None, ge=1, description="items of the pool at most; the oldest goes for a new one")
    queue_limit: int = Field(10, ge=1, description="items of the queue at most")
    pin_share: float = Field(0.25, gt=0, le=1, description="share pins may fill")
    state_tools: list[str] | None = Field(
        None, description="tools that write a todo list, plan or approval, of which the newest stays; null: recognized"
    )
    on_interrupt: Literal["keep", "discard", "repair"] = Field(
        "repair",
        description="of a cancelled turn, keep: it stays; discard: it is taken out; repair: it stays, and its open "
        "calls are shown as interrupted",
    )
    on_conflict: Literal["error", "fork"] = Field(
        "error", description="when another writer has the session: fail or fork"
    )
    merge_consecutive: bool = Field(False, description="join neighbours of one role, for models that want alternation")
    strict: bool = Field(False, description="raise ContextOverflow when what must be kept does not fit")
    strict_config: bool = Field(False, description="unknown keys are errors")
    token_counter: str = Field("o200k_base", min_length=1, description="vocabulary, `heuristic`, or a plug-in's name")
    search_index: str = Field(
        "auto",
        min_length=1,
        description="auto: a full-text index; `scan`: reads the history each time; or a plug-in's name",
    )

    embedder: str | None = Field(
        None,
        min_length=1,
        description="a plug-in's name: searches also compare vectors, with `amplifier-context-recall[vectors]`; "
        "default: words alone",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _is_a_number_of_64_bits(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation in _NUMBERS:
            raise ValueError("must be a number")
        if isinstance(value, int) and abs(value) >= 2**63:  # files and databases take numbers of 64 bits
            raise ValueError("must be below 2**63")
        return value

    @field_validator("cache_ttl", mode="before")
    @classmethod
    def _no_time_to_live(cls, value: Any) -> Any:
        return 0 if value in ("none", "off") else value

    @model_validator(mode="after")
    def _target_below_threshold(self) -> Config:
        if self.target_usage >= self.compact_threshold:
            raise ValueError(
                f"target_usage: {self.target_usage} must be below compact_threshold ({self.compact_threshold}), "
                "or a compaction could free nothing"
            )
        return self


AnyConfig = TypeVar("AnyConfig", bound=Config)


@overload
def load_config(raw: Mapping[str, Any] | None, *, module: str = "context") -> Config: ...
@overload
def load_config(raw: Mapping[str, Any] | None, *, module: str = "context", model: type[AnyConfig]) -> AnyConfig: ...
def load_config(raw: Mapping[str, Any] | None, *, module: str = "context", model: type[Config] = Config) -> Config:
    """Check a mount plan's config, in which null values count as not written. `model`: the settings, with the module's
    own keys, and defaults that differ from core's. Raises `ConfigError`: a known key has an impossible value, or, under
    `strict_config`, a key is unknown.
    """
    if raw is not None and not isinstance(raw, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("config", f"must be keys with values, got {type(raw).__name__}")
    # YAML parses a bare `on:` or `5:` as a key that is no text; it is reported as an unknown key.
    written = {str(key): value for key, value in (raw or {}).items() if value is not None}
    given = {key: value for key, value in written.items() if key not in SPELLINGS}
    for spelling, key in SPELLINGS.items():
        if spelling in written:
            given.setdefault(key, written[spelling])
    config = _validated(model, given)
    other = [key for key in given if key not in model.model_fields]
    idle = sorted(WITHOUT_MEANING.intersection(other))
    for key in other:
        if key in idle:
            continue
        hint = _hint(key, module, model)
        if config.strict_config:
            raise ConfigError(key, f"unknown key of {module}{hint}")
        log.warning("%s: unknown config key %r is ignored%s", module, key, hint)
    if given.get("compaction_strategy") == "summary" and "compaction_strategy" in idle:
        log.info("%s: compaction_strategy 'summary' is the module context-summary; here the digest is used", module)
    if idle:
        log.info("%s: accepted, without meaning here: %s", module, ", ".join(idle))
    return config


def _hint(key: str, module: str, model: type[Config]) -> str:
    """Return a hint about a key that a module does not read; empty if no known key is near."""
    if key in DURABLE:
        return f"; it is a key of context-persistent, not of {module}"
    near = difflib.get_close_matches(key, sorted({*model.model_fields, *WITHOUT_MEANING, *SPELLINGS}), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _validated(model: type[AnyConfig], given: Mapping[str, Any]) -> AnyConfig:
    values = dict(given)
    threshold = given.get("compact_threshold")
    target: float = model.model_fields["target_usage"].default
    # A low threshold without a target must not be below the default target.
    if "target_usage" not in values and isinstance(threshold, (int, float)) and 0 < threshold <= target:
        values["target_usage"] = threshold * target
    try:
        return model.model_validate(values)
    except ValidationError as problem:
        first = problem.errors()[0]
        reason = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            key, _, reason = reason.partition(": ")
            raise ConfigError(key, reason) from None
        name = str(first["loc"][0])
        field = model.model_fields.get(name)
        wanted = " and ".join(bound for item in (field.metadata if field else ()) for bound in _bounds(item))
        reason = reason[:1].lower() + reason[1:]
        is_time = field is not None and (field.description or "").startswith("seconds")
        read = seconds_in if is_time else amount_in
        is_whole = first["type"] == "int_parsing" or (is_time and first["type"] == "float_parsing")
        if is_whole and (number := read(str(first["input"]))) is not None:
            reason = f"write {number}"
        elif first["type"] == "list_type":
            reason = "it must be a list, like ['fold']" if name == "ladder" else reason
        elif wanted:
            is_out_of_range = first["type"].startswith(("greater_than", "less_than"))  # pydantic's names
            reason = f"must be {wanted}" if is_out_of_range else f"{reason}; it must be {wanted}"
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(key, f"{_shortened.repr(first['input'])[:200]} is impossible: {reason}") from None


def _bounds(constraint: object) -> Iterator[str]:
    for name, words in (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most")):
        bound = getattr(constraint, name, None)
        if bound is not None:
            yield f"{words} {bound}"
