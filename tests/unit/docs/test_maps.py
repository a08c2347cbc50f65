"""The maps of the larger packages in CONTRIBUTING name what is there, and all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src/kueuelib"
PACKAGES = (
    "app",
    "cli",
    "controllers",
    "embedded",
    "jobs",
    "jobs/pods",
    "jobs/reconcile",
    "machinery",
    "runtime",
    "scheduler",
    "testing",
    "workload",
)

MOST_OPENED = 8
"""Files that a change may open, with CONTRIBUTING and the fragment of the change log."""

_NAME = re.compile(r"`([a-z_]+)(/?)`")
_ROW = re.compile(r"^\| (`.*?) \| (.*) \|$", re.MULTILINE)


def _rows(package: str) -> Iterator[tuple[list[tuple[str, str]], list[tuple[str, str]]]]:
    """The rooms of each row, and what its text names in them; a folder has a slash."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = re.search(
        rf"^####? The rooms of `{package}`$(.*?)^##+ ", text, re.MULTILINE | re.DOTALL
    )
    assert section is not None, package
    for rooms, about in _ROW.findall(section[1]):
        yield _NAME.findall(rooms), _NAME.findall(about)


def _children(package: str) -> set[str]:
    folder = SOURCES / package
    return {path.stem for path in folder.glob("*.py") if path.stem != "__init__"} | {
        f"{path.parent.name}/" for path in folder.glob("*/__init__.py")
    }


def _is_there(folder: Path, name: str, slash: str) -> bool:
    packaged = (folder / name / "__init__.py").exists()
    return packaged if slash else packaged or (folder / f"{name}.py").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_map_has_every_module_and_package_in_one_row(package: str) -> None:
    named = sorted("".join(room) for rooms, _ in _rows(package) for room in rooms)
    assert named == sorted(_children(package))


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_row_names_is_in_its_rooms_or_beside_them(package: str) -> None:
    for rooms, named in _rows(package):
        folders = [SOURCES / package, *(SOURCES / package / room for room, _ in rooms)]
        missing = [name for name in named if not any(_is_there(each, *name) for each in folders)]
        assert missing == [], f"in the row of {rooms}"


def test_a_change_opens_few_files() -> None:
    """`test_links` holds that they exist."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("### Where to change what")[2].partition("### Rules")[0]
    rows = re.findall(r"^\| ((?!Change|---).*?) \| (.*) \|$", section, re.MULTILINE)
    opened = {change: len(re.findall(r"\]\(", files)) for change, files in rows}
    assert len(opened) >= 10
    assert {change: many for change, many in opened.items() if many + 2 > MOST_OPENED} == {}
