"""Odd objects given to `submit`, `watch` and `wait`: one clear error each, nothing is sent."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest

import kueuelib
from kueuelib.api.meta import Resource
from kueuelib.errors import ConfigError
from kueuelib.jobs.batch import BatchJob
from kueuelib.runtime.client import Client

JOB: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}


class Cluster:
    """Serves Jobs and Nodes, keeps what is created, and knows one job."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.read: list[str] = []

    async def find_resource(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        served = {"Job": ("batch", True), "Node": ("", False)}
        if served.get(kind, ("",))[0] != group or kind not in served:
            return None
        return Resource(group, version, f"{kind.lower()}s", kind, served[kind][1])

    async def create(self, resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
        self.created.append(obj)
        return {**obj, "metadata": {**obj["metadata"], "uid": "u"}}

    async def get(self, resource: Resource, key: Any) -> dict[str, Any]:
        self.read.append(f"{resource.plural}/{key}")
        raise ConfigError("the test", "got that far", "go on")


def with_meta(**meta: Any) -> dict[str, Any]:
    return {**JOB, "metadata": {"name": "j", **meta}}


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        ("job", "the job: is a str"),
        ({"metadata": {"name": "j"}}, "apiVersion: is missing"),
        ({**JOB, "kind": 3}, "kind: is 3"),
        ({**JOB, "kind": "Other"}, "batch/v1 Other: is not served by the cluster"),
        ({**JOB, "apiVersion": "v1", "kind": "Node"}, "v1 Node: is not a kind of jobs"),
        ({**JOB, "metadata": "j"}, "metadata: is 'j'"),
        (with_meta(name=3), "metadata.name: is 3"),
        (with_meta(namespace=["a"]), r"metadata.namespace: is \['a'\]"),
        (with_meta(labels=[1]), r"metadata.labels: is \[1\]"),
        (with_meta(labels={"a": 1}), r"metadata.labels\[a\]: is 1"),
        (with_meta(annotations={"a": None}), r"metadata.annotations\[a\]: is missing"),
    ],
)
async def test_an_odd_object_is_named_with_its_field(job: Any, problem: str) -> None:
    cluster = Cluster()
    client = cast("Client", cluster)
    with pytest.raises(ConfigError, match=problem):
        await kueuelib.submit(job, queue="team", client=client)
    with pytest.raises(ConfigError, match=problem):
        await kueuelib.wait(job, client=client)
    with pytest.raises(ConfigError, match=problem):
        await anext(kueuelib.watch(job, client=client))
    assert (cluster.created, cluster.read) == ([], [])


@pytest.mark.parametrize(
    ("job", "more", "problem"),
    [
        ({**JOB, "metadata": {}}, {}, "metadata.name: is missing"),
        ({**JOB, "metadata": None}, {}, "metadata.name: is missing"),
        ({**JOB, "spec": {"parallelism": 10**20}}, {}, "the job: is not JSON: Integer exceeds"),
        ({**JOB, "spec": {"x": {1, 2}}}, {}, "the job: is not JSON"),
        ({**JOB, "spec": {1: 2}}, {}, "the job: is not JSON"),
        (JOB, {"queue": ""}, "queue: '' is not a name"),
        (JOB, {"queue": "Bad_Queue"}, "queue: 'Bad_Queue' is not a name"),
        (JOB, {"priority_class": "High!"}, "priority_class: 'High!' is not a name"),
    ],
)
async def test_what_cannot_be_created_is_not_sent(
    job: Any, more: dict[str, Any], problem: str
) -> None:
    cluster = Cluster()
    with pytest.raises(ConfigError, match=problem):
        await kueuelib.submit(job, client=cast("Client", cluster), **{"queue": "team", **more})
    assert cluster.created == []


async def test_a_job_of_a_class_needs_no_kind_of_its_own() -> None:
    cluster = Cluster()
    given = {"metadata": {"generateName": "j-", "name": "j"}, "spec": {}}
    before = copy.deepcopy(given)
    handle = await kueuelib.submit(BatchJob(given), queue="team", client=cast("Client", cluster))
    (created,) = cluster.created
    assert (created["apiVersion"], created["kind"]) == ("batch/v1", "Job")
    assert created["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team"}
    assert str(handle.key) == "default/j"
    assert given == before


async def test_who_names_no_namespace_means_the_default_one() -> None:
    cluster = Cluster()
    with pytest.raises(ConfigError, match="got that far"):
        await kueuelib.wait(JOB, client=cast("Client", cluster))
    with pytest.raises(ConfigError, match="got that far"):
        await kueuelib.wait(BatchJob({"metadata": {"name": "k"}}), client=cast("Client", cluster))
    assert cluster.read == ["jobs/default/j", "jobs/default/k"]
    with pytest.raises(ConfigError, match="metadata.name: is missing"):
        await kueuelib.wait({**JOB, "metadata": {}}, client=cast("Client", cluster))


async def test_a_state_that_is_none_is_not_waited_for() -> None:
    with pytest.raises(ConfigError, match="until: 'Done' is not a state; give one of Queued, Adm"):
        await kueuelib.wait(JOB, cast("Any", "Done"), client=cast("Client", Cluster()))
