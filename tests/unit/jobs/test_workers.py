"""How many jobs of a kind are reconciled at a time."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from kueuelib.jobs.assembly import wire
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.telemetry import Telemetry

LIMIT = "controller_runtime_max_concurrent_reconciles"


@pytest.mark.parametrize(
    ("workers", "jobs", "pods"),
    [({}, 5, 5), ({"Job.batch": 2}, 2, 5), ({"Pod": 3, "Job.batch": 1}, 1, 3)],
)
def test_a_kind_has_five_workers_unless_the_configuration_says_otherwise(
    workers: dict[str, int], jobs: int, pods: int
) -> None:
    telemetry, client = Telemetry(), Mock(Client)
    settings = JobSettings(frameworks=("batch/job", "pod"), workers=workers)
    wire(client, Cache(client), Mock(), settings, telemetry=telemetry)
    found = {
        name: telemetry.registry.get_sample_value(LIMIT, {"controller": name})
        for name in ("batch/job", "pod")
    }
    assert found == {"batch/job": jobs, "pod": pods}
