from __future__ import annotations

import pytest

from kueuelib.api.kinds import NAMESPACES, WORKLOADS
from kueuelib.api.meta import (
    ObjectKey,
    ObjectMeta,
    OwnerReference,
    controller_of,
    format_micro_time,
    format_time,
    is_true,
    key_of,
    parse_time,
)


def test_times_go_to_the_wire_and_back():
    assert format_time(1767323045.9) == "2026-01-02T03:04:05Z"
    assert format_micro_time(1767323045.0) == "2026-01-02T03:04:05.000000Z"
    assert parse_time("2026-01-02T03:04:05Z") == 1767323045.0
    assert parse_time("2026-01-02T04:04:05.5+01:00") == 1767323045.5


@pytest.mark.parametrize("text", ["yesterday", "", "2026-01-02", "2026-01-02T03:04:05"])
def test_times_without_a_zone_or_sense_are_refused(text):
    with pytest.raises(ValueError, match="."):
        parse_time(text)


def test_paths_of_resources():
    assert WORKLOADS.path("ns", "w", "status") == (
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/w/status"
    )
    assert WORKLOADS.at("v1beta1").path() == "/apis/kueue.x-k8s.io/v1beta1/workloads"
    assert NAMESPACES.path("ignored", "n") == "/api/v1/namespaces/n"


def test_keys_controllers_and_conditions_of_raw_objects():
    raw = {
        "metadata": {
            "name": "n",
            "ownerReferences": [{"name": "a"}, {"name": "b", "controller": True}],
        },
        "status": {
            "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}]
        },
    }
    assert key_of(raw) == ObjectKey("", "n")
    assert controller_of(raw) == {"name": "b", "controller": True}
    assert is_true(raw, "A")
    assert not is_true(raw, "B")
    assert not is_true({"status": None}, "A")


def test_the_controller_of_typed_metadata():
    owner = OwnerReference("batch/v1", "Job", "j", "u", controller=True)
    assert ObjectMeta(owner_references=(OwnerReference(name="x"), owner)).controller is owner
    assert ObjectMeta().controller is None
