from __future__ import annotations

import pytest

from kueuelib.testing.storm.difference import only_newer_amounts
from kueuelib.testing.storm.history import Commit

IN_USE = "insufficient unused quota for cpu in flavor spot, 500m more needed"


def rewritten(old: str, new: str) -> Commit:
    before, after = ({"status": {"conditions": [{"message": text}]}} for text in (old, new))
    return Commit(1.0, 2, "manager-1", "workloads.kueue.x-k8s.io", "ns", "w", before, after)


@pytest.mark.parametrize(
    ("new", "may_change"),
    [
        ("insufficient unused quota for cpu in flavor spot, 2 more needed", True),
        ("insufficient unused quota for cpu in flavor on-demand, 500m more needed", False),
        ("insufficient quota for cpu in flavor spot, request (500m) > maximum (0)", False),
    ],
)
def test_a_restart_may_tell_newer_amounts_but_no_other_verdict(new: str, may_change: bool) -> None:
    assert only_newer_amounts(rewritten(IN_USE, new)) is may_change
