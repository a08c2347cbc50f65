"""The code blocks of all pages."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
TUTORIALS = ("docs/first-operator.md", "docs/first-queued-kind.md")
"""Pages that `tests/e2e/test_tutorials.py` follows word for word."""

_BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


@attrs.frozen
class Block:
    """A fenced block of a page.

    Attributes:
        page: relative to the repository.
        line: the line of its fence.
        language: what follows the fence.
        text: without the indentation of the fence.
    """

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """All blocks in these languages, or of any; in the order of their pages."""
    return [
        block
        for page in PAGES
        for block in blocks_of(page)
        if not languages or block.language in languages
    ]


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of one page, in order."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        body = textwrap.dedent(match[3])
        yield Block(str(page.relative_to(ROOT)), line, match[2].strip(), body)
