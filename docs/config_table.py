"""Writes the tables of docs/configuration.md from the settings and strategies: `python -m docs.config_table`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

from amplifier_context_core import Plugins
from amplifier_context_core.compaction.ladder import STRATEGIES, build_ladder
from amplifier_context_core.config import SPELLINGS, WITHOUT_MEANING, Config
from amplifier_context_persistent import PersistentConfig
from amplifier_context_summary import SummaryConfig

PAGE = Path(__file__).with_name("configuration.md")


def rows(config: type[Config], *, beside: type[Config] | None = None) -> list[str]:
    """The settings as a Markdown table; beside another's, only those that differ."""
    lines = ["| key | default | meaning |", "| --- | --- | --- |"]
    for key, field in config.model_fields.items():
        known = beside.model_fields.get(key) if beside else None
        if known is not None and known.default == field.default:
            continue
        default = "–" if field.default in (None, ()) else f"`{str(field.default).lower()}`"
        lines.append(f"| `{key}` | {default} | {field.description} |")
    return lines


def config_table() -> str:
    """All settings of core, and the keys that are accepted without meaning."""
    spellings = ", ".join(f"`{other}` is `{key}`" for other, key in SPELLINGS.items())
    idle = ", ".join(f"`{key}`" for key in sorted(WITHOUT_MEANING))
    return "\n".join([*rows(Config), "", f"Other spellings: {spellings}. Accepted, without meaning here: {idle}."])


def persistent_table() -> str:
    """What `context-persistent` has beside them."""
    return "\n".join(rows(PersistentConfig, beside=Config))


def summary_table() -> str:
    """What `context-summary` has beside them."""
    return "\n".join(rows(SummaryConfig, beside=Config))


def strategies_table() -> str:
    """The strategies of core: those of the default ladder in its order, then the others."""
    default = [strategy.name for strategy in build_ladder(Config(), Plugins())]
    lines = ["| strategy | in the default ladder | arguments | what it does |", "| --- | --- | --- | --- |"]
    for name in [*default, *sorted(STRATEGIES.keys() - set(default))]:
        place = str(default.index(name) + 1) if name in default else "–"
        line = (inspect.getdoc(STRATEGIES[name]) or "").partition("\n")[0]
        lines.append(f"| `{name}` | {place} | {arguments_of(name)} | {line} |")
    return "\n".join(lines)


def arguments_of(strategy: str) -> str:
    """The arguments that a config can give to a strategy, with their defaults; a function is not for a config."""
    shown = [
        f"`{one.name}`" if one.default is one.empty else f"`{one.name}` ({json.dumps(one.default)})"
        for one in inspect.signature(STRATEGIES[strategy]).parameters.values()
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        and (one.default is one.empty or not callable(one.default))
    ]
    return ", ".join(shown) or "–"


TABLES = {
    "config": config_table,
    "strategies": strategies_table,
    "persistent": persistent_table,
    "summary": summary_table,
}


def main() -> None:
    """Put the tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        head, rest = text.split(begin, 1)
        _, tail = rest.split(end, 1)
        text = f"{head}{begin}{table()}\n{end}{tail}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
