"""Building packages through their build backend, and reading what was built."""

import tarfile
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from build import ProjectBuilder
from pyproject_hooks import quiet_subprocess_runner

ROOT = Path(__file__).parents[2]
PACKAGES = [path.parent for path in sorted(ROOT.glob("*/pyproject.toml"))]


def files_of(folder: Path) -> set[str]:
    """The names of all files of a folder, at any depth."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def build(folder: Path, what: Literal["wheel", "sdist", "editable"], out: Path) -> Path:
    """Build by the folder's own backend, in the environment as it is; return the file that was built."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # setuptools warns of each editable build
        return Path(ProjectBuilder(folder, runner=quiet_subprocess_runner).build(what, out))


@dataclass(frozen=True)
class Built:
    """A copy of a package's folder, and what was built in it."""

    folder: Path
    before: set[str]  # its files before anything was built
    wheel: Path
    sdist: Path

    @property
    def top(self) -> str:
        """Import name of the package."""
        return self.wheel.name.split("-")[0]

    def in_the_wheel(self) -> dict[str, bytes]:
        """The files of the wheel by name."""
        with zipfile.ZipFile(self.wheel) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    def in_the_sdist(self) -> dict[str, bytes]:
        """The files of the source archive, by their names below its one folder."""
        with tarfile.open(self.sdist) as archive:
            read = {member.name.split("/", 1)[1]: archive.extractfile(member) for member in archive if member.isfile()}
            return {name: file.read() for name, file in read.items() if file}
