"""The tools over a folder: what they show, and that no path leads out of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from amplifier_core.models import ToolResult
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import ToolValidator
from amplifier_core.validation.behavioral import ToolBehaviorTests

from amplifier_context_testing.checks.conversation_builder import png
from amplifier_context_testing.demo import folder_tools as module
from amplifier_context_testing.demo.folder import Folder, FolderError, Limits

pytestmark = pytest.mark.kernel


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    (inside / "src").mkdir(parents=True)
    (inside / "README.md").write_text("# Hello\nThe loader is in src/loader.py.\n")
    (inside / "src" / "loader.py").write_text("def load_cache():\n    return 1\n")
    (tmp_path / "secret.txt").write_text("the secret")
    return inside


async def run(root: Path, name: str, **given: Any) -> ToolResult:
    tools = {tool.name: tool for tool in module.folder_tools({"path": str(root)})}
    return await tools[name].execute(given)


class TestKernelContract(ToolBehaviorTests):
    """The kernel's own suite; it finds modules by folder, so the fixture mounts ours."""

    @pytest.fixture(params=["list_folder", "read_file", "search_files"])
    async def tool_module(self, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
        coordinator = MockCoordinator()
        await module.mount(coordinator, {"path": str(tmp_path)})
        return coordinator.get("tools")[request.param]


async def test_the_kernels_validator_passes_it() -> None:
    result = await ToolValidator().validate("amplifier_context_testing.demo.folder_tools")
    assert result.passed, result.summary()


async def test_a_listing_shows_folders_first_and_sizes(root: Path) -> None:
    found = await run(root, "list_folder")
    assert found.output == f"dir  src/\nfile  {(root / 'README.md').stat().st_size}  README.md"
    assert (await run(root, "list_folder", path="src")).output.endswith("loader.py")


async def test_an_empty_folder_and_an_empty_file_are_reported_as_empty(root: Path) -> None:
    (root / "none").mkdir()
    (root / "empty").touch()
    assert "is empty" in (await run(root, "list_folder", path="none")).output
    assert (await run(root, "read_file", path="empty")).output == "empty is empty"


async def test_a_file_is_read_whole_or_by_lines(root: Path) -> None:
    (root / "ten").write_text("\n".join(f"line {n}" for n in range(1, 11)))
    assert (await run(root, "read_file", path="src/loader.py")).output == "def load_cache():\n    return 1"
    some = (await run(root, "read_file", path="ten", first_line=3, lines=2)).output
    assert some == "line 3\nline 4\n... more follows: read from line 5"
    assert (await run(root, "read_file", path="ten", first_line=10)).output == "line 10"
    assert not (await run(root, "read_file", path="ten", first_line=20)).success


def test_a_large_file_is_cut_and_says_where_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("\n".join(f"{n:09d}" for n in range(100_000)))
    shown = Folder(tmp_path, Limits(read_bytes=1000)).read("big")
    assert shown.endswith("... more follows: read from line 101")
    assert len(shown) < 1100
    goes_on = Folder(tmp_path, Limits(read_bytes=1000)).read("big", first=101)
    assert goes_on.startswith("000000100")


def test_a_line_without_end_is_shown_in_part(tmp_path: Path) -> None:
    (tmp_path / "one_line").write_text("x" * 5_000_000)
    shown = Folder(tmp_path, Limits(read_bytes=1000)).read("one_line")
    assert shown.startswith("x" * 1000 + "... the line goes on")


def test_a_line_too_far_in_is_not_searched_for_without_end(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("x\n" * 10_000)
    with pytest.raises(FolderError, match="lies further in"):
        Folder(tmp_path, Limits(scan_bytes=100)).read("big", first=9_000)


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"\x89PNG\r\n\x1a\n...", "PNG image"), (b"\x7fELF\x02", "ELF executable"), (b"a\x00b", "binary file")],
)
async def test_a_binary_file_is_described_not_shown(root: Path, content: bytes, kind: str) -> None:
    (root / "data").write_bytes(content)
    assert (await run(root, "read_file", path="data")).output == f"data: {kind}, {len(content)} bytes; not shown"


async def test_bytes_that_are_no_utf8_are_replaced(root: Path) -> None:
    (root / "latin").write_bytes("café".encode("latin-1"))
    assert (await run(root, "read_file", path="latin")).output == "caf\ufffd"


async def test_a_search_names_file_and_line(root: Path) -> None:
    found = await run(root, "search_files", text="load")
    assert found.output == "README.md:2: The loader is in src/loader.py.\nsrc/loader.py:1: def load_cache():"
    assert (await run(root, "search_files", text="load", names="*.py")).output == "src/loader.py:1: def load_cache():"
    assert (await run(root, "search_files", text="load", path="src/loader.py")).output.count("\n") == 0
    assert "no line holds 'nowhere' (2 files searched)" in (await run(root, "search_files", text="nowhere")).output


def test_a_search_is_bounded_and_passes_over_what_is_generated(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("needle")
    (tmp_path / "hay").write_text("needle\n" * 1000)
    (tmp_path / "huge").write_text("needle" + "x" * 3000)
    found = Folder(tmp_path, Limits(matches=10, file_bytes=8_000, line_chars=20)).search("needle")
    assert found.splitlines()[-1] == "... more matches are not shown"
    assert len(found.splitlines()) == 11
    assert ".git" not in found
    few = Folder(tmp_path, Limits(file_bytes=100)).search("needle")
    assert "no line holds" in few


@pytest.mark.parametrize(
    "path", ["..", "../secret.txt", "/etc/passwd", "src/../../secret.txt", "out", "out/secret.txt", "one"]
)
@pytest.mark.parametrize("name", ["list_folder", "read_file", "search_files"])
async def test_no_path_leads_out_of_the_folder(root: Path, name: str, path: str) -> None:
    (root / "out").symlink_to(root.parent)
    (root / "one").symlink_to(root.parent / "secret.txt")
    found = await run(root, name, path=path, text="secret")
    assert found.success is False
    assert "outside the folder" in found.output
    assert "the secret" not in found.output


async def test_a_search_does_not_follow_links_out(root: Path) -> None:
    (root / "out").symlink_to(root.parent)
    (root / "one").symlink_to(root.parent / "secret.txt")
    assert "no line holds" in (await run(root, "search_files", text="the secret")).output


async def test_a_link_that_stays_inside_is_followed(root: Path) -> None:
    (root / "alias").symlink_to(root / "README.md")
    assert (await run(root, "read_file", path="alias")).output.startswith("# Hello")
    assert "(link)" in (await run(root, "list_folder")).output


async def test_a_pipe_does_not_block(root: Path) -> None:
    os.mkfifo(root / "pipe")
    found = await run(root, "read_file", path="pipe")
    assert (found.success, "no regular file" in found.output) == (False, True)
    assert (await run(root, "search_files", text="load")).success


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("read_file", {}, "`path` is missing"),
        ("read_file", {"path": 3}, "`path` is no text"),
        ("read_file", {"path": "none.txt"}, "does not exist"),
        ("read_file", {"path": "src"}, "is a folder; list it"),
        ("read_file", {"path": "README.md", "lines": "two"}, "`lines` is no whole number"),
        ("read_file", {"path": "README.md", "first_line": 0, "lines": -1}, "at least one"),
        ("read_file", {"path": "a\x00b"}, "NUL"),
        ("read_file", {"path": "x" * 5000}, "cannot be opened"),
        ("read_file", {"path": "\ud83d"}, "cannot be opened"),
        ("list_folder", {"path": "README.md"}, "is a file; read it"),
        ("search_files", {}, "`text` is missing"),
    ],
)
async def test_what_cannot_be_is_a_result_that_says_so(
    root: Path, name: str, given: dict[str, Any], reason: str
) -> None:
    found = await run(root, name, **given)
    assert found.success is False
    assert reason in found.output
    assert (found.error or {})["message"] in found.output


async def test_a_loop_of_links_ends(root: Path) -> None:
    (root / "loop").symlink_to(root / "loop")
    assert not (await run(root, "read_file", path="loop")).success


@pytest.mark.parametrize("config", [{"path": "no/such/folder"}, {"max_bytes": 0}, {"pth": "."}])
def test_a_config_that_cannot_be_is_named(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="tool-folder"):
        module.folder_tools(config)


async def test_names_that_are_no_utf8_can_be_listed(tmp_path: Path) -> None:
    try:
        os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    found = await run(tmp_path, "list_folder")
    assert found.output.encode()


def test_the_picture_of_the_tests_is_seen_as_one(tmp_path: Path) -> None:
    import base64

    (tmp_path / "p.png").write_bytes(base64.b64decode(png(8, 8)))
    assert "PNG image" in Folder(tmp_path).read("p.png")
