"""The table of changes in CONTRIBUTING names few files for each."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]

MOST_OPENED = 8
"""Files that a change may open, with CONTRIBUTING and the fragment of the change log."""


def test_a_change_opens_few_files() -> None:
    """`test_links` holds that they exist."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("### Where to change what")[2].partition("### Rules")[0]
    rows = re.findall(r"^\| ((?!Change|---).*?) \| (.*) \|$", section, re.MULTILINE)
    opened = {change: len(re.findall(r"\]\(", files)) for change, files in rows}
    assert len(opened) >= 10
    assert {change: many for change, many in opened.items() if many + 2 > MOST_OPENED} == {}
