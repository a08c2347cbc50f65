"""Other seeds, other histories; order alone changes no result."""

from __future__ import annotations


def test_seeds_differ(simulate):
    first, second = (simulate("programs.py", ("plain",), seed, 0.4)["plain"] for seed in (1, 2))
    assert first["trace"] != second["trace"]
    assert first["complete"] == second["complete"] == 5
