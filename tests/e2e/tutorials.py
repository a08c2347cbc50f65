"""The tutorials as steps: what a reader types, and writes into which file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUTORIALS = ("first-operator", "first-queued-kind")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"[Ww]rite (?:this|it)[^.:]*?into\s+`([\w.]+)`|into\s+`([\w.]+)`:\s*$")


def steps(page: str) -> Iterator[tuple[str, str, str]]:
    """Language and text of each block, and the file into which the text before it says to write."""
    end = 0
    for match in _BLOCK.finditer(page):
        prose = page[end : match.start()]
        names = [one or other for one, other in _FILE.findall(prose)]
        yield match[1], match[2], names[-1] if names else ""
        end = match.end()
