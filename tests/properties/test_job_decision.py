"""Laws of the simulated Job controller, over random histories of a Job and its pods."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.batch_rules import validate_job_status
from kueuelib.embedded.cluster.job_decision import (
    JobDecision,
    JobMemory,
    PodBackoff,
    decide,
    first_memory,
    format_indexes,
    index_of,
    is_active,
    is_finished,
    new_pod,
    parse_indexes,
)

BACKOFF = PodBackoff(10.0, 40.0)


class JobHistory(RuleBasedStateMachine):
    """A Job whose pods end, fail and are deleted at random, looked at after every step."""

    @initialize(
        parallelism=st.integers(0, 4),
        completions=st.none() | st.integers(0, 5),
        indexed=st.booleans(),
        backoff_limit=st.integers(0, 3),
        patient=st.booleans(),
        suspend=st.booleans(),
        deadline=st.none() | st.integers(1, 200),
    )
    def begin(
        self,
        parallelism: int,
        completions: int | None,
        indexed: bool,
        backoff_limit: int,
        patient: bool,
        suspend: bool,
        deadline: int | None,
    ) -> None:
        spec: Obj = {
            "parallelism": parallelism,
            "backoffLimit": backoff_limit,
            "suspend": suspend,
            "completionMode": "Indexed" if indexed and completions is not None else "NonIndexed",
            "podReplacementPolicy": "Failed" if patient else "TerminatingOrFailed",
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        }
        if completions is not None:
            spec["completions"] = completions
        if deadline is not None:
            spec["activeDeadlineSeconds"] = deadline
        meta = {"name": "job", "namespace": "default", "uid": "job-uid"}
        kind = {"apiVersion": "batch/v1", "kind": "Job"}
        self.job: Obj = {**kind, "metadata": meta, "spec": spec, "status": {}}
        self.pods: dict[str, Obj] = {}
        self.memory = JobMemory()
        self.now = 1_800_000_000.0
        self.made = 0
        self.due: float | None = None
        self.succeeded_ever: set[str] = set()
        self.blameless: set[str] = set()
        self.condemned: set[str] = set()
        self.sync()

    # ---- the world

    def decide(self) -> JobDecision:
        return decide(self.job, tuple(self.pods.values()), self.memory, self.now, BACKOFF)

    def sync(self) -> None:
        """Looks at the Job as its controller does: until nothing is left to do."""
        for _ in range(5):
            found = self.decide()
            old = self.job
            self.job = {**old, "status": found.status}
            problems = [str(error) for error in validate_job_status(self.job, old)]
            assert problems == []
            before = old["status"]
            assert found.status.get("succeeded", 0) >= before.get("succeeded", 0)
            assert found.status.get("failed", 0) >= before.get("failed", 0)
            assert not (is_finished(old) and not is_finished(self.job))
            ending = {"FailureTarget", "SuccessCriteriaMet"} & self.conditions()
            for pod in found.delete:
                self.delete_pod(pod["metadata"]["name"])
                name = pod["metadata"]["name"]
                (self.condemned if ending else self.blameless).add(name)
            for index in found.create:
                self.create_pod(index)
            self.memory, self.due = found.memory, found.due
            if not (found.create or found.delete) and before == found.status:
                return
        raise AssertionError("the controller never comes to rest")

    def conditions(self) -> set[str]:
        return {one["type"] for one in self.job["status"].get("conditions", ())}

    def create_pod(self, index: int | None) -> None:
        self.made += 1
        pod = new_pod(self.job, index)
        name = f"pod-{self.made}"
        pod["metadata"] |= {"name": name, "uid": name, "creationTimestamp": f"{self.made:09}"}
        pod["spec"]["nodeName"] = "node"
        pod["status"] = {"phase": "Running"}
        self.pods[name] = pod

    def delete_pod(self, name: str) -> None:
        meta = self.pods[name]["metadata"] | {"deletionTimestamp": "2027-01-01T00:00:00Z"}
        self.pods[name] = {**self.pods[name], "metadata": meta}

    def end_pod(self, pod: Obj, phase: str) -> None:
        name = pod["metadata"]["name"]
        self.pods[name] = {**pod, "status": {"phase": phase}}
        if phase == "Succeeded":
            self.succeeded_ever.add(name)

    def of_phase(self, *phases: str) -> list[Obj]:
        return [pod for pod in self.pods.values() if pod["status"]["phase"] in phases]

    # ---- what happens

    @precondition(lambda self: self.of_phase("Running"))
    @rule(data=st.data(), success=st.booleans())
    def a_pod_ends(self, data: st.DataObject, success: bool) -> None:
        pod = data.draw(st.sampled_from(self.of_phase("Running")))
        self.end_pod(pod, "Succeeded" if success else "Failed")
        self.sync()

    @precondition(lambda self: self.of_phase("Running"))
    @rule(data=st.data())
    def all_pods_end_at_once(self, data: st.DataObject) -> None:
        for pod in self.of_phase("Running"):
            self.end_pod(pod, data.draw(st.sampled_from(["Succeeded", "Failed"])))
        self.sync()

    @precondition(lambda self: self.of_phase("Running"))
    @rule(data=st.data())
    def a_user_deletes_a_pod(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.of_phase("Running")))
        self.delete_pod(pod["metadata"]["name"])
        self.condemned.add(pod["metadata"]["name"])
        self.sync()

    @rule()
    def deleted_pods_are_killed(self) -> None:
        for pod in self.of_phase("Running"):
            if "deletionTimestamp" in pod["metadata"]:
                self.end_pod(pod, "Failed")
        self.sync()

    @precondition(lambda self: self.of_phase("Succeeded", "Failed"))
    @rule(data=st.data())
    def an_ended_pod_is_removed(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.of_phase("Succeeded", "Failed")))
        del self.pods[pod["metadata"]["name"]]
        self.sync()

    @rule(seconds=st.integers(1, 60))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        self.sync()

    @rule()
    def the_controller_is_on_time(self) -> None:
        if self.due is not None:
            self.now = max(self.now, self.due)
            self.sync()

    @rule(suspend=st.booleans(), forget=st.booleans())
    def suspension_changes(self, suspend: bool, forget: bool) -> None:
        self.job = {**self.job, "spec": self.job["spec"] | {"suspend": suspend}}
        if suspend and forget and not is_finished(self.job):
            kept = {key: value for key, value in self.job["status"].items() if key != "startTime"}
            self.job = {**self.job, "status": kept}
        self.sync()

    @rule(parallelism=st.integers(0, 4))
    def parallelism_changes(self, parallelism: int) -> None:
        self.job = {**self.job, "spec": self.job["spec"] | {"parallelism": parallelism}}
        self.sync()

    @rule()
    def the_controller_restarts(self) -> None:
        self.memory = first_memory(self.job, tuple(self.pods.values()))
        self.sync()

    # ---- the laws

    def active(self) -> list[Obj]:
        return [pod for pod in self.pods.values() if is_active(pod)]

    @invariant()
    def no_more_pods_are_active_than_wanted(self) -> None:
        spec, status = self.job["spec"], self.job["status"]
        limit = spec["parallelism"]
        if spec.get("completions") is not None:
            limit = min(limit, max(spec["completions"] - status.get("succeeded", 0), 0))
        if spec["suspend"] or is_finished(self.job):
            limit = 0
        assert len(self.active()) <= limit
        assert status.get("active", 0) == len(self.active())

    @invariant()
    def no_index_is_worked_on_twice(self) -> None:
        if self.job["spec"]["completionMode"] != "Indexed":
            return
        found = [index_of(pod) for pod in self.active()]
        done = parse_indexes(self.job["status"].get("completedIndexes"))
        assert len(found) == len(set(found))
        assert done.isdisjoint(found)
        assert len(done) == self.job["status"].get("succeeded", 0)

    @invariant()
    def successes_are_those_of_pods(self) -> None:
        assert self.job["status"].get("succeeded", 0) <= len(self.succeeded_ever)

    @invariant()
    def pods_that_the_controller_deletes_are_no_failures(self) -> None:
        failed = self.job["status"].get("failed", 0)
        fine = (self.blameless | self.succeeded_ever) - self.condemned
        assert failed <= self.made - len(fine)

    @invariant()
    def a_complete_job_has_its_completions(self) -> None:
        wanted = self.job["spec"].get("completions")
        if "Complete" in self.conditions() and wanted is not None:
            assert self.job["status"].get("succeeded", 0) >= wanted

    @invariant()
    def another_look_changes_nothing(self) -> None:
        found = self.decide()
        assert (found.create, found.delete) == ((), ())
        assert found.status == self.job["status"]


TestJobHistory = JobHistory.TestCase
TestJobHistory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def finish_all(parallelism: int, completions: int, *, indexed: bool) -> Any:
    """A Job whose pods all succeed, to its end."""
    history = JobHistory()
    history.begin(parallelism, completions, indexed, 0, False, False, None)
    for _ in range(completions + 1):
        if is_finished(history.job):
            break
        for pod in history.of_phase("Running"):
            history.end_pod(pod, "Succeeded")
        history.sync()
    return history


@given(st.integers(1, 5), st.integers(0, 8), st.booleans())
def test_a_job_whose_pods_succeed_completes_with_exactly_its_pods(
    parallelism: int, completions: int, indexed: bool
) -> None:
    history = finish_all(parallelism, completions, indexed=indexed)
    assert {"Complete", "SuccessCriteriaMet"} <= history.conditions()
    assert history.made == completions


@given(st.sets(st.integers(0, 60)))
def test_index_texts_round_trip(indexes: set[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == indexes
