"""The expected counts, and what to say when a count moved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("expected.json")
TOLERANCE = 0.05
"""A count may differ from the expected one by this part of it, when the code changes: what the
manager does is the same on all versions of Python, and function calls differ by less than 0.1 %,
"""
SMALLEST = 0.02
"""or by so much per admission, if that is more."""
HOW_TO_ACCEPT = (
    "If the change is meant to cost this, accept the new numbers with\n"
    "    python tests/counts/counting.py --accept\n"
    "and say in the commit why they moved."
)


def read() -> dict[str, float]:
    """The expected counts."""
    return json.loads(FILE.read_text())


def written(numbers: Mapping[str, float]) -> str:
    """Counts as text, in a stable order."""
    rounded = {name: round(number, 3) for name, number in sorted(numbers.items())}
    return json.dumps(rounded, indent=2) + "\n"


def moved(expected: Mapping[str, float], counted: Mapping[str, float]) -> str:
    """What grew or fell too far, in lines; empty when nothing did."""
    lines = []
    for name in sorted(expected.keys() | counted.keys()):
        before, now = expected.get(name, 0.0), counted.get(name, 0.0)
        if abs(now - before) <= max(before * TOLERANCE, SMALLEST):
            continue
        verb = "grew" if now > before else "fell"
        part = f" ({now / before - 1:+.0%})" if before else ""
        lines.append(f"{name}: {verb} from {before:g} to {now:g} per admission{part}")
    return "\n".join([*lines, HOW_TO_ACCEPT]) if lines else ""
