"""The pages people read: their blocks of code, and their named sections (``<!-- name:begin -->``)."""

import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PATHS = [ROOT / "README.md", *sorted(ROOT.glob("*/README.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def read(path: str) -> str:
    """The text of a page, by its path from the root."""
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """The code of this language in the text of a page, in order."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def between(page: str, name: str) -> str:
    """A named section of the text of a page."""
    found = re.search(rf"<!-- {re.escape(name)}:begin -->\n(.*?)<!-- {re.escape(name)}:end -->", page, re.DOTALL)
    assert found, f"the page has no section {name}"
    return found.group(1).strip()


def code(page: str, name: str) -> str:
    """The one block of code of a named section."""
    (block,) = re.findall(r"```\w+\n(.*?)```", between(page, name), re.DOTALL)
    return block


def files(page: str) -> list[str]:
    """Names of the modules that a page holds: sections that end in ``.py``."""
    return re.findall(r"<!-- ([\w]+\.py):begin -->", page)


def module(page: str, file: str) -> ModuleType:
    """The module that a section of a page would be saved as, run."""
    made = ModuleType(Path(file).stem)
    sys.modules[made.__name__] = made  # dataclasses look for their module there
    exec(compile(code(page, file), file, "exec"), made.__dict__)  # noqa: S102 - to run it is the test
    return made
