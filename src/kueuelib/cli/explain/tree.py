"""The table of the tree of cohorts in the answers of `kueuelib explain`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from kueuelib.api.quantity import MAX_AMOUNT, format_amount
from kueuelib.scheduler.explain.tree_rows import TreeRow

_AMOUNTS = ("Own", "Nominal", "Used", "May borrow", "May lend", "Room")


def tree_table(rows: Sequence[TreeRow]) -> Table:
    """The table of what the ClusterQueue and the cohorts above it own, lend and use, from the
    bottom up.
    """
    weighted = any(row.weight is not None for row in rows)
    table = Table(show_edge=True)
    table.add_column("Tree", overflow="fold")
    if weighted:
        for title in ("Weight", "Share"):
            table.add_column(title, justify="right")
    for title in ("Resource", "Flavor"):
        table.add_column(title, overflow="fold")
    for title in _AMOUNTS:
        table.add_column(title, justify="right", overflow="fold")
    before = ""
    for row in rows:
        label = f"{row.kind} {row.name}"
        first = label != before
        weight = [_weight(row), _share(row)] if first else ["", ""]
        amounts = (
            row.own,
            row.nominal,
            row.used,
            row.borrowing_limit,
            row.lending_limit,
            row.room,
        )
        table.add_row(
            label if first else "",
            *(weight if weighted else ()),
            row.resource,
            row.flavor,
            *("-" if amount is None else format_amount(row.resource, amount) for amount in amounts),
        )
        before = label
    return table


def _weight(row: TreeRow) -> str:
    return "-" if row.weight is None else f"{row.weight:g}"


def _share(row: TreeRow) -> str:
    if row.weighted_share is None:
        return "-"
    return "most" if row.weighted_share == MAX_AMOUNT else str(row.weighted_share)
