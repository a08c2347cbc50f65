"""Pods that have ended: so many are kept, the oldest go."""

from __future__ import annotations

from kueuelib.embedded.cluster.doomed_pods import PERIOD

SHORT = {"kueuelib.dev/run-seconds": "0.5"}


def names(pods) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in pods)


async def ended(sandbox, *wanted: str) -> None:
    for name in wanted:
        await sandbox.pod(name, annotations=SHORT)
        await sandbox.pass_time(1)


async def test_the_oldest_ended_pods_go_when_there_are_too_many(sandbox) -> None:
    await sandbox.cluster.close()
    async with sandbox.restarted(ended_limit=2).cluster as cluster:
        sandbox.cluster = cluster
        await sandbox.pod("runs")
        await ended(sandbox, "a", "b", "c", "d")
        assert names(await sandbox.pods()) == ["a", "b", "c", "d", "runs"]
        await sandbox.pass_time(PERIOD)
        await sandbox.pass_time(PERIOD)
        assert names(await sandbox.pods()) == ["c", "d", "runs"]
        await sandbox.pass_time(10 * PERIOD)
        assert names(await sandbox.pods()) == ["c", "d", "runs"]


async def test_pods_that_ended_just_now_are_left_to_those_who_count_them(sandbox) -> None:
    await sandbox.cluster.close()
    async with sandbox.restarted(ended_limit=1).cluster as cluster:
        sandbox.cluster = cluster
        await sandbox.job(parallelism=2, completions=6, run=1)
        for _ in range(3):
            await sandbox.pass_time(1)
        assert len(await sandbox.pods()) == 6
        for _ in range(2):
            await sandbox.pass_time(PERIOD)
        assert len(await sandbox.pods()) == 1
        status = await sandbox.status()
        assert (status["succeeded"], status.get("active"), status.get("failed")) == (6, None, None)


async def test_a_pod_that_a_finalizer_holds_stays_and_the_others_go(sandbox) -> None:
    await sandbox.cluster.close()
    async with sandbox.restarted(ended_limit=1).cluster as cluster:
        sandbox.cluster = cluster
        await sandbox.pod("held", annotations=SHORT, finalizers=["a.example/b"])
        await sandbox.pass_time(1)
        await ended(sandbox, "x", "y")
        await sandbox.pass_time(PERIOD)
        await sandbox.pass_time(PERIOD)
        assert names(await sandbox.pods()) == ["held", "y"]
