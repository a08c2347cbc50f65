"""The page of feature gates is up to date."""

from __future__ import annotations

from .gate_table import PAGE, page


def test_the_page_is_what_is_generated() -> None:
    command = "python tests/unit/docs/gate_table.py > docs/feature-gates.md"
    assert PAGE.read_text() == page(), f"run `{command}`"
