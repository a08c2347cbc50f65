"""What an API server stores by the CRDs alone never makes a reconciliation fail.

`CRD_MUTANTS=2000 pytest tests/unit/controllers/test_what_the_crds_admit.py` is the long form.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from kueuelib.api import kinds
from kueuelib.api.meta import Resource
from kueuelib.errors import Invalid

from ..api.queue_mutants import mutant  # noqa: TID252 - shared by two folders of tests
from ..api.queue_objects import queue_object  # noqa: TID252

if TYPE_CHECKING:
    from .conftest import World

COUNT = int(os.environ.get("CRD_MUTANTS", "400"))
RESOURCES: dict[str, Resource] = {
    "ClusterQueue": kinds.CLUSTER_QUEUES,
    "Cohort": kinds.COHORTS,
    "LocalQueue": kinds.LOCAL_QUEUES,
    "ResourceFlavor": kinds.RESOURCE_FLAVORS,
    "Workload": kinds.WORKLOADS,
    "AdmissionCheck": kinds.ADMISSION_CHECKS,
}
FAILED = ("controller_runtime_reconcile_errors_total", "controller_runtime_reconcile_panics_total")


async def test_no_reconciliation_fails(world: World) -> None:
    await world.queues(cpu="1000")
    await world.flavor("calm")  # mutants hold no quota of it
    await world.cluster_queue("calm", flavor="calm")
    await world.local_queue("calm", "calm")
    async with world.running():
        stored: Counter[str] = Counter()
        for number in range(COUNT):
            stored[await _send(world, Random(number), number)] += 1
        await world.workload("last", queue="calm")
        await world.is_("last", "Admitted")
        assert stored["refused"] > COUNT / 10
        assert sum(stored.values()) - stored["refused"] > COUNT / 8
        assert _failures(world) == {}


async def _send(world: World, chance: Random, number: int) -> str:
    """Creates a mutant and then a change of it; the kind, or `refused`."""
    kind = chance.choice((*RESOURCES, "Workload", "Workload", "ClusterQueue"))
    resource = RESOURCES[kind]
    obj = queue_object(kind, f"m{number}")
    if kind == "Workload":
        obj["spec"]["queueName"] = "main"
        obj["status"]["admission"]["clusterQueue"] = "cq"
    obj = mutant(chance, obj)
    status = obj.pop("status", None)
    try:
        made = await world.client.create(resource, obj)
        if status is not None:
            await world.client.replace(resource, {**made, "status": status}, subresource="status")
    except Invalid:
        return "refused"
    return kind


def _failures(world: World) -> dict[Any, float]:
    """Reconciliations that failed, by counter and controller."""
    text = world.telemetry.render().decode()
    return {
        (sample.name, sample.labels.get("controller")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in FAILED and sample.value
    }
