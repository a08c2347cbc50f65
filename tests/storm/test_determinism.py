"""One seed is one history, whatever the process that plays it."""

from __future__ import annotations

import pytest


def test_the_real_manager_finishes_jobs_in_virtual_time(simulate):
    found = simulate("plain")
    assert found["complete"] == 5
    assert found["quiet"]
    assert found["now"] > 15
    assert found["problems"] == []
    assert found["endings"] == []
    assert found["holder"].startswith("manager-1_")
    assert found["actors"] == ["installer", "manager-1", "server", "user"]


@pytest.mark.parametrize("disorder", [0.0, 0.4])
def test_hash_seeds_change_nothing(simulate, disorder):
    first, second = (simulate("plain", 7, disorder, hash_seed=each) for each in (1, 2))
    assert first == second
    assert first["lines"] > 300


def test_seeds_differ(simulate):
    first, second = (simulate("plain", seed, 0.4) for seed in (1, 2))
    assert first["trace"] != second["trace"]
    assert first["complete"] == second["complete"] == 5
