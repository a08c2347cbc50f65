"""What the documentation points to exists: files, headings, commands and options."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kueuelib.cli.syntax import app

from .blocks import PAGES, ROOT

COMMANDS = ROOT / "docs/commands.md"

_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_OPTION = re.compile(r"(?<![-\w])--[a-z][-a-z0-9]*")


def _links(page: Path) -> Iterator[str]:
    for found in _LINK.findall(_FENCE.sub("", page.read_text())):
        if "://" not in found and not found.startswith("mailto:"):
            yield found


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _sections() -> dict[str, str]:
    """The text of commands.md by command."""
    parts = re.split(r"^## kueuelib ([a-z]+)$", COMMANDS.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _options(command: str) -> set[str]:
    found = app.commands[command]
    return {
        name
        for param in found.params
        if isinstance(param, click.Option)
        for name in (*param.opts, *param.secondary_opts)
        if name.startswith("--")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_points_to_a_file_and_a_heading(page: Path) -> None:
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} points to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in _anchors(target), f"{page.name} points to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_headings_leave_no_level_out(page: Path) -> None:
    """The site counts that as a warning, and a warning is an error there."""
    marks = re.findall(r"^(#+) ", _FENCE.sub("", page.read_text()), re.MULTILINE)
    levels = [0, *map(len, marks)]
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels)), page.name


def test_there_are_links_to_check() -> None:
    assert sum(1 for page in PAGES for _ in _links(page)) > 10


def test_every_command_is_documented() -> None:
    assert set(_sections()) == set(app.commands)


@pytest.mark.parametrize("command", sorted(app.commands))
def test_the_documented_options_of_a_command_are_its_options(command: str) -> None:
    text = _FENCE.sub("", _sections()[command])
    listed = "\n".join(line for line in text.splitlines() if line.startswith("- "))
    assert set(_OPTION.findall(listed)) == _options(command), command
    assert set(_OPTION.findall(text)) <= _options(command), command
