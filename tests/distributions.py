"""Distributions that tests install, as far as `importlib.metadata` sees them."""

from pathlib import Path


def install(site: Path, name: str, version: str, group: str, points: dict[str, str]) -> None:
    """Write what an installer leaves of a distribution with entry points of one group into a folder of `sys.path`."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    lines = "".join(f"{point} = {value}\n" for point, value in points.items())
    (folder / "entry_points.txt").write_text(f"[{group}]\n{lines}", encoding="utf-8")
