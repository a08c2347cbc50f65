"""What `explain` says of objects that are not there, or that may not be read."""

from __future__ import annotations

from typing import cast

import pytest

from kueuelib.app.explaining.asking import ask
from kueuelib.app.explaining.gather import ObjectNotFound
from kueuelib.app.explaining.subject import parse_manifests, parse_reference
from kueuelib.cli.explain.command import answer_data
from kueuelib.errors import ConfigError
from kueuelib.runtime.client import Client

from .test_explaining import SINCE, FakeClient, Ticks, asked, cluster, holder, job, small


async def test_checks_that_may_not_be_read_are_not_missing() -> None:
    """Neither their ClusterQueue nor the user is blamed for what only the caller cannot see."""
    queue = cluster()[2]
    queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "budget"}]}
    state = {"name": "budget", "state": "Pending", "message": "", **SINCE}
    for waits, verdict in ((small(), "admitted"), (holder(admissionChecks=[state]), "holds quota")):
        client = FakeClient(*cluster(), waits, forbidden=("admissionchecks",))
        client.replace(queue)
        asks = ask(cast("Client", client), parse_reference("workload/wl"), "ns", clock=Ticks())
        answer = await asks
        note = "admissionchecks were not read and are taken to be Active: you may not list them"
        assert note in answer.notes
        assert answer_data(answer)["verdict"] == verdict
        assert answer.explanation is not None
        assert answer.explanation.problems == ()
    (awaited,) = answer.explanation.awaited
    assert awaited.who == "check budget (which may not be read)"
    assert awaited.next_step.startswith("ask for the right to read AdmissionCheck budget")


async def test_a_job_with_an_unknown_class_is_found_and_says_so() -> None:
    answer = await asked("job/train", job(**{"kueue.x-k8s.io/priority-class": "vip"}))
    (problem,) = answer.problems
    assert problem.subject == "Job train"
    assert 'WorkloadPriorityClass "vip"' in problem.problem
    assert problem.fix == "create the class or name another one"
    assert answer_data(answer)["verdict"] == "no workload"


@pytest.mark.parametrize("reference", ["job/train", "workload/wl", "jobset/x"])
async def test_a_namespace_that_does_not_exist_is_named(reference: str) -> None:
    client = cast("Client", FakeClient(*cluster(), job()))
    with pytest.raises(ObjectNotFound, match="Namespace nope does not exist; there are ns"):
        await ask(client, parse_reference(reference), "nope", clock=Ticks())


def test_a_file_that_is_no_manifest_is_told_apart_by_its_kind() -> None:
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    with pytest.raises(ConfigError, match="objects of kind Configuration .* cannot be explained"):
        parse_manifests(text, "manager.yaml", "", "ns")
