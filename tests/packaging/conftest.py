"""Each package, built once for all tests of this folder."""

import shutil

import pytest

from tests.packaging.builds import PACKAGES, Built, build, files_of

LEFTOVERS = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")


@pytest.fixture(scope="session", params=PACKAGES, ids=lambda folder: folder.name)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Each package, built all three ways in one folder, as a clone's user may do one after the other."""
    scratch = tmp_path_factory.mktemp("built")
    folder = scratch / request.param.name
    shutil.copytree(request.param, folder, ignore=LEFTOVERS)
    before = files_of(folder)
    build(folder, "editable", scratch / "out-editable")
    return Built(folder, before, build(folder, "wheel", scratch / "out"), build(folder, "sdist", scratch / "out"))
