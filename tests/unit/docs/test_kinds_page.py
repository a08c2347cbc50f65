"""The page of built-in kinds is up to date."""

from __future__ import annotations

from .kinds_table import PAGE, constants, page


def test_the_page_is_what_is_generated() -> None:
    command = "python tests/unit/docs/kinds_table.py > docs/reference/kinds.md"
    assert PAGE.read_text() == page(), f"run `{command}`"


def test_no_kind_has_two_constants() -> None:
    found = list(constants().values())
    assert len({(kind.group, kind.kind) for kind in found}) == len(found)
