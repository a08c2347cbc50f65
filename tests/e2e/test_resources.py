"""The block `resources` of the configuration, from a Job to its admission; what commands say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rest import JOBS, KUEUE, WORKLOADS, Obj, Rest, condition, eventually, job, queues
from warm import Processes, kueuelib

from kueuelib.testing.processes import LocalCluster

RULES = """
resources:
  excludeResourcePrefixes: [networking.example/]
  transformations:
  - {input: example.com/slice, strategy: Replace, outputs: {example.com/credits: 5}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with Processes(tmp_path) as processes:
        found = LocalCluster(processes, settings=RULES)
        found.start()
        yield found


def sliced(name: str, slices: int) -> Obj:
    made = job(name, seconds=600)
    requests = {"cpu": "1", "networking.example/vpc": "1", "example.com/slice": str(slices)}
    resources = {"requests": requests, "limits": {**requests}}
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    return made


def allow_credits(rest: Rest, quota: int) -> None:
    queue = rest.get(f"{KUEUE}/clusterqueues/team")
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"] = ["cpu", "example.com/credits"]
    group["flavors"][0]["resources"][1:] = [
        {"name": "example.com/credits", "nominalQuota": str(quota)}
    ]
    rest.merge(f"{KUEUE}/clusterqueues/team", {"spec": {"resourceGroups": [group]}})


def test_what_counts_is_what_the_rules_say(cluster: LocalCluster, rest: Rest) -> None:
    queues(rest, cpu=8)
    allow_credits(rest, 9)
    rest.create(JOBS, sliced("wide", 2))
    eventually(lambda: any(condition(one, "QuotaReserved") for one in rest.items(WORKLOADS)))
    (waits,) = rest.items(WORKLOADS)
    assert waits["status"]["resourceRequests"] == [
        {"name": "main", "resources": {"cpu": "1", "example.com/credits": "10"}}
    ]
    assert "example.com/credits" in condition(waits, "QuotaReserved")["message"]

    config = cluster.kubeconfig.parent / "config.yaml"
    options = ("--kubeconfig", cluster.kubeconfig, "--config", config, "-o", "json")
    answer = kueuelib("explain", "job/wide", *options)
    rows = {row["resource"]: row["requested"] for row in json.loads(answer.stdout)["table"]}
    assert rows == {"cpu": "1", "example.com/credits": "10"}, answer.stderr
    (listed,) = json.loads(kueuelib("pending", "--changes", *options).stdout)["items"]
    assert listed["smallestChange"]["details"]["amounts"][0]["by"] == 1
    found = json.loads(kueuelib("doctor", *options).stdout)["findings"]
    assert "example.com/credits" not in json.dumps(
        [one for one in found if one["check"] == "quota-promised"]
    )

    allow_credits(rest, 10)
    eventually(lambda: not rest.get(f"{JOBS}/wide")["spec"]["suspend"])
    (runs,) = rest.items(WORKLOADS)
    (assignment,) = runs["status"]["admission"]["podSetAssignments"]
    assert assignment["resourceUsage"] == {"cpu": "1", "example.com/credits": "10"}
    assert not runs["status"].get("resourceRequests")
