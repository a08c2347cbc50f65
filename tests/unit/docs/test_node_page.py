"""The page of the node shows what the node does with each field of a pod."""

from __future__ import annotations

from .node_table import PAGE, page


def test_the_table_is_what_is_generated() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page(text), "run `python tests/unit/docs/node_table.py`"
