"""What `explain` says of objects that are not there, or that may not be read."""

from __future__ import annotations

from typing import cast

import pytest

from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.app.explaining import asking
from kueuelib.app.explaining.asking import ask
from kueuelib.app.explaining.gather import ObjectNotFound
from kueuelib.app.explaining.subject import parse_manifests, parse_reference
from kueuelib.app.explaining.when import ask_when
from kueuelib.cli.explain.command import answer_data
from kueuelib.cli.explain.text import show
from kueuelib.cli.explain.when import lines, when_data
from kueuelib.errors import ConfigError
from kueuelib.jobs.client.progress import Progress, State, Why
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


STATE = Progress(
    State.QUEUED,
    Why(
        "Pending",
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, "
        "2 more needed",
    ),
    workload="wl",
    queue="lq",
    lacks={"cpu": Quantity.parse("2")},
    place=3,
    start_p50=1300.0,
    start_p90=1600.0,
    now=1000.0,
)
WORDS = "Waiting for quota: cpu on f: 2 more needed; place 3; starts within 5m (p50), 10m (p90)"


@pytest.fixture
def of_namespace(monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client that may not list ClusterQueues, and a manager that serves a state."""

    async def state(asked: Obj, *, client: object) -> Progress:
        del client
        assert asked == {"kind": "Job", "name": "train", "namespace": "ns"}
        return STATE

    monkeypatch.setattr(asking, "queue_state", state)
    return cast("Client", FakeClient(*cluster(), small(), forbidden=("clusterqueues",)))


async def test_with_the_rights_of_a_namespace_explain_says_what_the_manager_serves(
    of_namespace: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = await ask(of_namespace, parse_reference("job/train"), "ns", clock=Ticks())
    show([answer])
    told = capsys.readouterr().out
    assert told.startswith(f"Job train: {WORDS}\n")
    assert "no changes were searched for: may not list clusterqueues" in told
    data = answer_data(answer)
    assert (data["verdict"], data["queueState"]["place"]) == ("not evaluated", 3)
    assert data["queueState"]["text"] == WORDS


async def test_with_the_rights_of_a_namespace_its_start_is_that_which_the_manager_serves(
    of_namespace: Client,
) -> None:
    answer = await ask_when(of_namespace, parse_reference("job/train"), "ns", clock=Ticks())
    assert next(lines(answer)) == f"Job train: {WORDS}"
    data = when_data(answer)
    assert (data["p50"], data["p90"]) == ("1970-01-01T00:21:40Z", "1970-01-01T00:26:40Z")
    assert data["known"]


def test_a_file_that_is_no_manifest_is_told_apart_by_its_kind() -> None:
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    with pytest.raises(ConfigError, match="objects of kind Configuration .* cannot be explained"):
        parse_manifests(text, "manager.yaml", "", "ns")
