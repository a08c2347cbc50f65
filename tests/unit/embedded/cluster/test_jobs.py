"""Jobs in the simulated cluster, through the API."""

from __future__ import annotations

import asyncio

import pytest

from kueuelib.api.kinds import EVENTS, JOBS, LIMIT_RANGES, NODES, PODS
from kueuelib.api.meta import ObjectKey, find_condition, format_time, is_true
from kueuelib.embedded.cluster.job_decision import MOST_AT_ONCE, JobMemory, PodBackoff, decide
from kueuelib.embedded.verbs import Propagation
from kueuelib.errors import Invalid
from kueuelib.runtime.queries import PatchType


def phases(pods) -> list[str]:
    return sorted(pod["status"]["phase"] for pod in pods)


async def test_a_job_runs_its_pods_and_completes(sandbox) -> None:
    await sandbox.job(run=5, parallelism=2, completions=3)
    status = await sandbox.status()
    assert (status["active"], status["ready"], status["terminating"]) == (2, 2, 0)
    assert status["startTime"] == format_time(sandbox.clock.now())
    assert phases(await sandbox.pods()) == ["Running", "Running"]
    await sandbox.pass_time(5)
    status = await sandbox.status()
    assert (status["active"], status["succeeded"]) == (1, 2)
    await sandbox.pass_time(5)
    job = await sandbox.get(JOBS, "job")
    assert is_true(job, "SuccessCriteriaMet")
    assert is_true(job, "Complete")
    assert find_condition(job["status"]["conditions"], "Complete")["reason"] == "CompletionsReached"
    assert job["status"]["succeeded"] == 3
    assert "active" not in job["status"]
    assert job["status"]["completionTime"] == format_time(sandbox.clock.now())
    assert phases(await sandbox.pods()) == ["Succeeded"] * 3


async def test_pods_of_a_job_carry_its_labels_and_reference(sandbox) -> None:
    job = await sandbox.job()
    (pod,) = await sandbox.pods()
    uid = job["metadata"]["uid"]
    assert pod["metadata"]["name"].startswith("job-")
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "job"
    assert pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == uid
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", uid, True)


async def test_without_backoff_the_first_failure_ends_a_job(sandbox) -> None:
    first, _ = await sandbox.running_job(parallelism=2, completions=2, backoffLimit=0)
    await sandbox.finish(first, exit_code=1)
    status = await sandbox.status()
    assert find_condition(status["conditions"], "FailureTarget")["status"] == "True"
    assert not find_condition(status["conditions"], "Failed")
    assert status["terminating"] == 1
    await sandbox.pass_time(31)
    status = await sandbox.status()
    failed = find_condition(status["conditions"], "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "BackoffLimitExceeded")
    assert status["failed"] == 2
    assert "active" not in status


async def test_failed_pods_are_replaced_after_growing_delays(sandbox) -> None:
    pods = await sandbox.running_job(backoffLimit=2)
    await sandbox.finish(pods[0], exit_code=1)
    assert "active" not in await sandbox.status()
    await sandbox.pass_time(9)
    assert len(await sandbox.pods()) == 1
    await sandbox.pass_time(1)
    assert phases(await sandbox.pods()) == ["Failed", "Running"]
    running = next(pod for pod in await sandbox.pods() if pod["status"]["phase"] == "Running")
    await sandbox.finish(running, exit_code=1)
    await sandbox.pass_time(19)
    assert len(await sandbox.pods()) == 2
    await sandbox.pass_time(1)
    assert len(await sandbox.pods()) == 3
    assert (await sandbox.status())["failed"] == 2
    assert not is_true(await sandbox.get(JOBS, "job"), "Failed")


async def test_suspension_deletes_pods_and_resumption_starts_anew(sandbox) -> None:
    await sandbox.job(backoffLimit=0, parallelism=2, completions=2)
    await sandbox.patch(JOBS, "job", {"spec": {"suspend": True}})
    status = await sandbox.status()
    assert find_condition(status["conditions"], "Suspended")["status"] == "True"
    assert "active" not in status
    assert status["terminating"] == 2
    await sandbox.pass_time(31)
    assert await sandbox.pods() == []
    assert (await sandbox.status()).get("failed") is None
    await sandbox.patch(JOBS, "job", {"spec": {"suspend": False}})
    status = await sandbox.status()
    assert find_condition(status["conditions"], "Suspended")["reason"] == "JobResumed"
    assert status["startTime"] == format_time(sandbox.clock.now())
    assert status["active"] == 2


async def test_a_job_created_suspended_has_no_pods_and_no_start(sandbox) -> None:
    await sandbox.job(suspend=True)
    status = await sandbox.status()
    assert find_condition(status["conditions"], "Suspended")["reason"] == "JobSuspended"
    assert "startTime" not in status
    assert await sandbox.pods() == []


async def test_a_late_controller_acts_on_the_job_that_it_has_read(sandbox) -> None:
    """Its pods are there before it sees that the Job was suspended again, which it still says."""
    await sandbox.job(suspend=True)
    sandbox.cluster.delay_jobs(5)
    for suspend in (False, True):
        change = {"spec": {"suspend": suspend}}
        await sandbox.service.patch(JOBS, ObjectKey("default", "job"), change, PatchType.MERGE)
        for _ in range(20):
            await asyncio.sleep(0)
    sandbox.cluster.delay_jobs(0)
    sandbox.clock.advance(5)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(await sandbox.pods()) == 1
    status = await sandbox.status()
    assert find_condition(status["conditions"], "Suspended")["status"] == "True"
    assert "active" not in status
    await sandbox.pass_time(5)
    assert all("deletionTimestamp" in one["metadata"] for one in await sandbox.pods())


async def test_a_job_whose_start_was_forgotten_ends_when_it_has_one_again(sandbox) -> None:
    (pod,) = await sandbox.running_job(pod={"terminationGracePeriodSeconds": 60}, completions=1)
    kept = {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}
    await sandbox.patch(PODS, pod["metadata"]["name"], kept)
    await sandbox.patch(JOBS, "job", {"spec": {"suspend": True}})
    await sandbox.patch(JOBS, "job", {"status": {"startTime": None}}, "status")
    ended = {"status": {"phase": "Succeeded"}}
    await sandbox.patch(PODS, pod["metadata"]["name"], ended, "status")
    await sandbox.pass_time(10)
    job = await sandbox.get(JOBS, "job")
    assert not is_true(job, "Complete"), "the API server refuses the end"
    start = {"status": {"startTime": format_time(sandbox.clock.now())}}
    await sandbox.patch(JOBS, "job", start, "status")
    await sandbox.pass_time(10)
    assert is_true(await sandbox.get(JOBS, "job"), "Complete")


async def test_the_start_of_a_suspended_job_can_be_forgotten_and_its_template_changed(
    sandbox,
) -> None:
    await sandbox.job()
    change = {"spec": {"template": {"spec": {"nodeSelector": {"kueuelib.dev/pool": "spot"}}}}}
    with pytest.raises(Invalid, match="startTime cannot be removed for unsuspended job"):
        await sandbox.patch(JOBS, "job", {"status": {"startTime": None}}, "status")
    with pytest.raises(Invalid, match=r"spec\.template: Invalid value: .*: field is immutable"):
        await sandbox.patch(JOBS, "job", change)
    await sandbox.patch(JOBS, "job", {"spec": {"suspend": True}})
    await sandbox.patch(JOBS, "job", {"status": {"startTime": None}}, "status")
    await sandbox.patch(JOBS, "job", change)
    await sandbox.patch(JOBS, "job", {"spec": {"suspend": False}})
    pods = [pod for pod in await sandbox.pods() if "deletionTimestamp" not in pod["metadata"]]
    assert [pod["spec"]["nodeName"] for pod in pods] == ["simulated-node-1"]


async def test_pods_beyond_a_lowered_parallelism_are_deleted(sandbox) -> None:
    await sandbox.job(parallelism=3, completions=3, backoffLimit=0)
    await sandbox.patch(JOBS, "job", {"spec": {"parallelism": 1}})
    await sandbox.pass_time(31)
    assert phases(await sandbox.pods()) == ["Running"]
    status = await sandbox.status()
    assert (status["active"], status.get("failed")) == (1, None)


async def test_pods_deleted_by_users_are_failures_and_replaced_at_once(sandbox) -> None:
    (pod,) = await sandbox.running_job(backoffLimit=3)
    await sandbox.delete(PODS, pod["metadata"]["name"])
    assert (await sandbox.status())["failed"] == 1
    await sandbox.pass_time(10)
    assert (await sandbox.status())["active"] == 1
    assert len(await sandbox.pods()) == 2
    await sandbox.pass_time(30)
    assert len(await sandbox.pods()) == 1


async def test_the_replacement_policy_failed_waits_for_the_end_of_a_deleted_pod(sandbox) -> None:
    (pod,) = await sandbox.running_job(backoffLimit=3, podReplacementPolicy="Failed")
    await sandbox.delete(PODS, pod["metadata"]["name"])
    await sandbox.pass_time(20)
    assert len(await sandbox.pods()) == 1
    assert "failed" not in await sandbox.status()
    await sandbox.pass_time(11)
    await sandbox.pass_time(10)
    assert phases(await sandbox.pods()) == ["Running"]


async def test_indexed_jobs_run_every_index_once(sandbox) -> None:
    pods = await sandbox.running_job(completionMode="Indexed", parallelism=2, completions=3)
    found = {
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in pods
    }
    assert found == {"0", "1"}
    one = next(pod for pod in pods if pod["metadata"]["name"].startswith("job-1-"))
    assert one["spec"]["hostname"] == "job-1"
    assert one["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    await sandbox.finish(one)
    status = await sandbox.status()
    assert (status["completedIndexes"], status["succeeded"], status["active"]) == ("1", 1, 2)
    for pod in await sandbox.pods():
        if pod["status"]["phase"] == "Running":
            await sandbox.finish(pod)
    job = await sandbox.get(JOBS, "job")
    assert job["status"]["completedIndexes"] == "0-2"
    assert is_true(job, "Complete")


async def test_an_elastic_indexed_job_shrinks_and_grows(sandbox) -> None:
    await sandbox.job(completionMode="Indexed", parallelism=3, completions=3)
    with pytest.raises(Invalid, match="can only be modified in tandem"):
        await sandbox.patch(JOBS, "job", {"spec": {"completions": 2}})
    await sandbox.patch(JOBS, "job", {"spec": {"completions": 2, "parallelism": 2}})
    await sandbox.pass_time(31)
    assert len(await sandbox.pods()) == 2
    await sandbox.patch(JOBS, "job", {"spec": {"completions": 4, "parallelism": 4}})
    assert (await sandbox.status())["active"] == 4


async def test_a_work_queue_ends_when_one_pod_has_succeeded_and_none_is_left(sandbox) -> None:
    first, second = await sandbox.running_job(parallelism=2)
    await sandbox.finish(first)
    assert (await sandbox.status())["active"] == 1
    await sandbox.finish(second)
    assert is_true(await sandbox.get(JOBS, "job"), "Complete")


async def test_a_job_beyond_its_deadline_fails(sandbox) -> None:
    await sandbox.job(activeDeadlineSeconds=60, pod={"terminationGracePeriodSeconds": 1})
    await sandbox.pass_time(59)
    assert not is_true(await sandbox.get(JOBS, "job"), "FailureTarget")
    await sandbox.pass_time(2)
    await sandbox.pass_time(2)
    failed = find_condition((await sandbox.status())["conditions"], "Failed")
    assert failed["reason"] == "DeadlineExceeded"
    assert await sandbox.pods() == []


async def test_a_finished_job_goes_with_its_pods_when_its_time_is_over(sandbox) -> None:
    await sandbox.job(run=1, ttlSecondsAfterFinished=60)
    await sandbox.pass_time(1)
    assert is_true(await sandbox.get(JOBS, "job"), "Complete")
    await sandbox.pass_time(58)
    assert await sandbox.exists(JOBS, "job")
    await sandbox.pass_time(2)
    assert not await sandbox.exists(JOBS, "job")
    assert await sandbox.pods() == []


async def test_a_job_of_another_controller_is_left_alone(sandbox) -> None:
    job = await sandbox.job(managedBy="example.com/else")
    assert await sandbox.pods() == []
    assert "status" not in job or job["status"] == {}


async def test_succeeded_pods_that_are_deleted_stay_counted(sandbox) -> None:
    first, _ = await sandbox.running_job(parallelism=2, completions=2)
    await sandbox.finish(first)
    await sandbox.delete(PODS, first["metadata"]["name"])
    status = await sandbox.status()
    assert (status["succeeded"], status["active"]) == (1, 1)
    assert len(await sandbox.pods()) == 1


async def test_a_deleted_job_takes_its_pods_along(sandbox) -> None:
    await sandbox.job(parallelism=2, completions=2)
    await sandbox.delete(JOBS, "job")
    assert not await sandbox.exists(JOBS, "job")
    assert all(pod["metadata"]["deletionTimestamp"] for pod in await sandbox.pods())
    await sandbox.pass_time(31)
    assert await sandbox.pods() == []


async def test_orphaned_pods_stay_when_their_job_is_deleted(sandbox) -> None:
    await sandbox.job()
    await sandbox.delete(JOBS, "job", Propagation.ORPHAN)
    assert not await sandbox.exists(JOBS, "job")
    (pod,) = await sandbox.pods()
    assert "ownerReferences" not in pod["metadata"]
    assert pod["status"]["phase"] == "Running"


async def test_a_job_deleted_in_the_foreground_waits_for_its_pods(sandbox) -> None:
    await sandbox.job()
    await sandbox.delete(JOBS, "job", Propagation.FOREGROUND)
    job = await sandbox.get(JOBS, "job")
    assert job["metadata"]["finalizers"] == ["foregroundDeletion"]
    await sandbox.pass_time(31)
    assert not await sandbox.exists(JOBS, "job")
    assert await sandbox.pods() == []


async def test_the_life_of_a_job_is_told_in_events(sandbox) -> None:
    await sandbox.job(suspend=True, run=1)
    await sandbox.patch(JOBS, "job", {"spec": {"suspend": False}})
    await sandbox.pass_time(1)
    events = (await sandbox.service.list(EVENTS)).items
    of_job = {each["reason"]: each for each in events if each["involvedObject"]["kind"] == "Job"}
    assert set(of_job) == {"Suspended", "Resumed", "SuccessfulCreate", "Completed"}
    assert of_job["Completed"]["source"]["component"] == "job-controller"
    of_pod = {each["reason"] for each in events if each["involvedObject"]["kind"] == "Pod"}
    assert of_pod == {"Scheduled"}


async def test_a_job_whose_pods_are_refused_says_so_and_tries_again(sandbox) -> None:
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}}]},
    }
    await sandbox.create(LIMIT_RANGES, limits)
    await sandbox.job()
    messages = [
        each["message"]
        for each in (await sandbox.service.list(EVENTS)).items
        if each["reason"] == "FailedCreate"
    ]
    assert "minimum cpu usage per Container is 2, but request is 1" in messages[0]
    assert "active" not in await sandbox.status()
    await sandbox.delete(LIMIT_RANGES, "limits")
    await sandbox.pass_time(10)
    assert (await sandbox.status())["active"] == 1


async def test_what_of_a_job_is_not_simulated_is_told(sandbox) -> None:
    await sandbox.job(podFailurePolicy={"rules": []})
    events = (await sandbox.service.list(EVENTS)).items
    (event,) = [each for each in events if each["reason"] == "NotSimulated"]
    assert event["type"] == "Warning"
    assert "spec.podFailurePolicy" in event["message"]


async def test_an_orphaned_pod_is_replaced(sandbox) -> None:
    (pod,) = await sandbox.running_job()
    await sandbox.patch(PODS, pod["metadata"]["name"], {"metadata": {"ownerReferences": None}})
    assert (await sandbox.status())["active"] == 1
    assert len(await sandbox.pods()) == 2


async def test_a_job_of_endless_parallelism_gets_what_the_cluster_takes(sandbox) -> None:
    service = sandbox.service
    await sandbox.cluster.close()
    async with sandbox.restarted(pod_limit=40).cluster as cluster:
        sandbox.cluster = cluster
        await sandbox.job(parallelism=2**31 - 1, completions=2**31 - 1, run=5)
        assert len(await sandbox.pods()) == 40
        assert (await sandbox.status())["active"] == 40
        events = (await service.list(EVENTS)).items
        (event,) = [each for each in events if each["reason"] == "FailedCreate"]
        assert event["type"] == "Warning"
        assert "takes at most 40 pods that have not ended" in event["message"]
        await sandbox.pass_time(5)
        status = await sandbox.status()
        assert (status["active"], status["succeeded"]) == (40, 40)


async def test_many_pods_are_made_and_deleted_in_several_goes(sandbox) -> None:
    await sandbox.job(parallelism=MOST_AT_ONCE + 10, completionMode="Indexed", completions=600)
    assert (await sandbox.status())["active"] == MOST_AT_ONCE + 10
    await sandbox.patch(JOBS, "job", {"spec": {"suspend": True}})
    await sandbox.pass_time(31)
    assert await sandbox.pods() == []
    assert "active" not in await sandbox.status()


async def test_pods_that_no_node_takes_wait(sandbox) -> None:
    for name in ("simulated-node-0", "simulated-node-1"):
        status = {"capacity": {"pods": "1"}, "allocatable": {"pods": "1"}}
        await sandbox.patch(NODES, name, {"status": status}, subresource="status")
    await sandbox.job(parallelism=3, completions=3)
    pods = await sandbox.pods()
    assert phases(pods) == ["Pending", "Running", "Running"]
    (waiting,) = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
    condition = find_condition(waiting["status"]["conditions"], "PodScheduled")
    assert condition["message"] == "0/2 nodes are available: 2 Too many pods."


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_one_look_at_a_job_is_bounded_whatever_it_asks_for(mode) -> None:
    spec = {"parallelism": 2**31 - 1, "completions": 2**31 - 1, "completionMode": mode}
    job = {"metadata": {"name": "job", "uid": "u"}, "spec": spec}
    decision = decide(job, [], JobMemory(), 1.7e9, PodBackoff())
    assert len(decision.create) == MOST_AT_ONCE
    assert (decision.due, decision.withheld) == (1.7e9, 0)
    decision = decide(job, [], JobMemory(), 1.7e9, PodBackoff(), room=3)
    assert len(decision.create) == decision.status["active"] == 3
    assert decision.withheld == 2**31 - 1 - 3


def test_the_end_of_a_large_job_deletes_its_pods_in_several_looks() -> None:
    job = {"metadata": {"name": "job", "uid": "u"}, "spec": {"backoffLimit": 0}}
    job["status"] = {"failed": 1, "startTime": format_time(1.7e9)}
    pods = [
        {"metadata": {"name": f"p{i}", "uid": f"p{i}"}, "spec": {}, "status": {"phase": "Pending"}}
        for i in range(MOST_AT_ONCE + 1)
    ]
    decision = decide(job, pods, JobMemory(), 1.7e9, PodBackoff())
    assert len(decision.delete) == MOST_AT_ONCE
    assert decision.due == 1.7e9
    assert not find_condition(decision.status["conditions"], "Failed")
    assert decision.status["failed"] == MOST_AT_ONCE + 1
    job["status"] = decision.status
    rest = [pod for pod in pods if pod not in decision.delete]
    decision = decide(job, rest, decision.memory, 1.7e9, PodBackoff())
    assert decision.delete == tuple(rest)
    assert find_condition(decision.status["conditions"], "Failed")["status"] == "True"
    assert decision.status["failed"] == MOST_AT_ONCE + 2
