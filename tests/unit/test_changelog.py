"""Fragments of changelog.d become an entry of CHANGELOG.md."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]


def test_every_fragment_has_a_known_type() -> None:
    types = {one["directory"] for one in SETTINGS["type"]}
    names = {path.name for path in (ROOT / "changelog.d").iterdir()} - {*SETTINGS["ignore"]}
    assert not {name for name in names if name.split(".")[1:] not in [[one, "md"] for one in types]}


def test_a_release_moves_fragments_above_the_older_entries(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    folder = tmp_path / "changelog.d"
    folder.mkdir()
    shutil.copy(ROOT / "changelog.d" / "README.md", folder)
    (folder / "+topic.added.md").write_text("Added a topic.\n")
    (folder / "12.fixed.md").write_text("An issue was closed.\n")
    build = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "0.2.0"]
    subprocess.run([*build, "--date", "2030-01-02"], cwd=tmp_path, check=True, capture_output=True)
    entry, older = (tmp_path / "CHANGELOG.md").read_text().split("\n## 0.1.0")
    assert [line for line in entry.splitlines()[3:] if line] == [
        "## 0.2.0 (2030-01-02)",
        "### Added",
        "- Added a topic.",
        "### Fixed",
        "- An issue was closed. (#12)",
    ]
    assert older
    assert [path.name for path in folder.iterdir()] == ["README.md"]
