"""A module holds one concept: what grows beyond its limit is split."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMITS = {"src": 700, "examples": 400, "tests": 800}
"""The most lines of a module, by folder. In `src`, most concepts need less than 400."""


def test_no_module_is_longer_than_its_limit() -> None:
    too_long = {
        str(path.relative_to(ROOT)): f"{lines} lines, at most {limit}: split it"
        for folder, limit in LIMITS.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (lines := len(path.read_text().splitlines())) > limit
    }
    assert too_long == {}
