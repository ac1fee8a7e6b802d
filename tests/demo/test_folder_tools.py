"""The tools over a folder: what they show, and that no path leads out of it."""

import os
from pathlib import Path
from typing import Any

import pytest
from amplifier_core.models import ToolResult
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation.behavioral import ToolBehaviorTests

from amplifier_context_testing.demo import folder_tools as module
from amplifier_context_testing.demo.folder_tools import Folder

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


def test_a_large_file_is_cut_and_says_where_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("\n".join(f"{n:09d}" for n in range(100_000)))
    shown = Folder(tmp_path, 1000).read("big")
    assert (shown.endswith("... more follows: read from line 101"), len(shown) < 1100) == (True, True)
    assert Folder(tmp_path, 1000).read("big", first=101).startswith("000000100")


@pytest.mark.parametrize("path", ["..", "/etc/passwd", "src/../../secret.txt", "out", "out/secret.txt", "one"])
@pytest.mark.parametrize("name", ["list_folder", "read_file", "search_files"])
async def test_no_path_leads_out_of_the_folder(root: Path, name: str, path: str) -> None:
    (root / "out").symlink_to(root.parent)
    (root / "one").symlink_to(root.parent / "secret.txt")
    found = await run(root, name, path=path, text="secret")
    assert (found.success, "outside the folder" in found.output, "the secret" in found.output) == (False, True, False)
    assert "no line holds" in (await run(root, "search_files", text="the secret")).output  # nor does a link


async def test_a_pipe_does_not_block(root: Path) -> None:
    os.mkfifo(root / "pipe")
    found = await run(root, "read_file", path="pipe")
    assert (found.success, "no regular file" in found.output) == (False, True)
    assert (await run(root, "search_files", text="load")).success
