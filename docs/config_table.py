"""Writes the README's config table from the settings themselves: `python -m docs.config_table`."""

from __future__ import annotations

from pathlib import Path

from amplifier_context_core.config import SPELLINGS, WITHOUT_MEANING, Config

README = Path(__file__).parents[1] / "README.md"


def config_table() -> str:
    """The settings as a Markdown table, and the keys that are accepted without meaning."""
    rows = ["| key | default | meaning |", "| --- | --- | --- |"]
    for key, field in Config.model_fields.items():
        default = "–" if field.default is None else f"`{str(field.default).lower()}`"
        rows.append(f"| `{key}` | {default} | {field.description} |")
    spellings = ", ".join(f"`{other}` is `{key}`" for other, key in SPELLINGS.items())
    idle = ", ".join(f"`{key}`" for key in sorted(WITHOUT_MEANING))
    return "\n".join([*rows, "", f"Other spellings: {spellings}. Accepted, without meaning here: {idle}."])


def main() -> None:
    """Put the table where the README has it."""
    text = README.read_text(encoding="utf-8")
    begin, end = "<!-- config:begin -->\n", "<!-- config:end -->"
    head, rest = text.split(begin, 1)
    _, tail = rest.split(end, 1)
    README.write_text(f"{head}{begin}{config_table()}\n{end}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
