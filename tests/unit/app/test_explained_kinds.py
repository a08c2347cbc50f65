"""Objects of kinds that are not known here are explained by their Workload."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj
from kueuelib.app.explaining.gather import ObjectNotFound
from kueuelib.app.explaining.subject import owned_workload, parse_reference


def workload(name: str, owner: str, *, created: int = 0, finished: bool = False) -> Obj:
    obj = WORKLOADS.new(name, "ns")
    reference = {"apiVersion": "ml.example.com/v1", "kind": "Training", "name": owner, "uid": "u"}
    obj["metadata"] |= {
        "ownerReferences": [reference],
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
        "uid": name,
    }
    obj["status"] = {"conditions": [{"type": "Finished", "status": str(finished)}]}
    return obj


@pytest.mark.parametrize("kind", ["Training", "training", "trainings", "trainings.ml.example.com"])
def test_the_newest_unfinished_workload_of_the_owner_is_meant(kind: str) -> None:
    workloads = [
        workload("old", "one", created=1),
        workload("new", "one", created=2),
        workload("done", "one", created=3, finished=True),
        workload("other", "two", created=4),
    ]
    found = owned_workload(parse_reference(f"{kind}/one"), "ns", workloads)
    assert found["metadata"]["name"] == "new"


def test_an_object_without_workload_is_not_found() -> None:
    with pytest.raises(ObjectNotFound, match="no Workload in namespace ns belongs to rayjob one"):
        owned_workload(parse_reference("rayjob/one"), "ns", [workload("a", "one")])
    with pytest.raises(ObjectNotFound):
        owned_workload(parse_reference("training/one"), "elsewhere", [workload("a", "one")])
