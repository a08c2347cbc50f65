"""Parsl's KubernetesProvider in a queue; blocks are simulated pods, or processes of a node."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("parsl", reason="parsl is not installed; nox -s integrations installs it")

import parsl
from kubernetes.client import ApiException
from kubernetes.config import kube_config
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.jobs.states import JobState
from team import Looks, Team

from kueuelib.integrations.parsl import QueuedProvider


def until(provider: QueuedProvider, job: str, state: JobState, text: str = "") -> None:
    deadline = time.monotonic() + 30
    while True:
        (status,) = provider.status([job])
        if status.state is state and text in (status.message or ""):
            return
        assert time.monotonic() < deadline, status
        time.sleep(0.3)


def test_a_block_waits_with_a_reason_and_another_follows_an_eviction(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", team.kubeconfig)
    provider = QueuedProvider(
        local_queue="team", namespace=team.namespace, image="local", init_cpu=1, max_cpu=1
    )
    with team.occupied():
        block = provider.submit("sleep 600", 1)

        def latest() -> str:
            (status,) = provider.status([block])
            assert status.state is JobState.PENDING
            return str(status.message)

        looks = Looks.at(team, "Parsl", latest, 30)
        assert looks.lapses == 0, looks
    until(provider, block, JobState.RUNNING)

    with team.occupied():
        until(provider, block, JobState.TIMEOUT, "evicted")
        again = provider.submit("sleep 600", 1)
    until(provider, again, JobState.RUNNING)
    assert provider.cancel([again]) == [True]


class AwayManager:
    """Creates pods, which the API server refuses a few times because a webhook does not answer."""

    def __init__(self, create: Callable[..., Any], times: int) -> None:
        self.create, self.times = create, times

    def __call__(self, **arguments: Any) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise ApiException(500, "failed calling webhook")
        return self.create(**arguments)


def test_a_block_waits_for_a_manager_that_is_away(
    team: Team, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "parsl.kueuelib")
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", team.kubeconfig)
    provider = QueuedProvider(
        local_queue="team",
        priority_class="low",
        namespace=team.namespace,
        image="local",
        init_cpu=1,
        max_cpu=1,
    )
    provider._create = AwayManager(provider._create, 4)
    block, other = provider.submit("sleep 600", 1), provider.submit("sleep 600", 1)
    for status in provider.status([block, other]):
        assert status.state is JobState.PENDING
        assert status.message.endswith("refuses the pod for now: failed calling webhook")
    assert f"{block}: Waiting: the API server refuses" in caplog.text
    assert provider.cancel([other]) == [True]
    until(provider, block, JobState.RUNNING)
    team.wait_for_admission()
    assert provider.cancel([block]) == [True]


class EagerProvider(QueuedProvider):
    """One that asks for the states of its blocks more often than once a minute."""

    status_polling_interval = 1


def test_all_apps_finish_although_the_only_running_block_is_preempted(
    real_team: Team, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", real_team.kubeconfig)
    executor = HighThroughputExecutor(
        address="127.0.0.1",
        encrypted=False,
        max_workers_per_node=1,
        heartbeat_period=1,
        heartbeat_threshold=5,
        worker_logdir_root="/tmp",
        provider=EagerProvider(
            local_queue="team",
            namespace=real_team.namespace,
            image="local",
            init_blocks=2,
            max_blocks=2,
            init_cpu=1,
            max_cpu=1,
            max_mem="8Gi",
        ),
    )
    config = Config([executor], retries=5, strategy_period=1, run_dir=str(tmp_path))

    slow = parsl.python_app(subprocess.check_output)  # blocks cannot import this module

    def count(state: JobState, text: str = "") -> int:
        states = executor.status_facade.values()
        return sum(each.state is state and text in (each.message or "") for each in states)

    with parsl.load(config):
        futures = [slow(["sh", "-c", f"sleep 2; echo {number}"]) for number in range(8)]
        eventually(lambda: count(JobState.PENDING, "Waiting for quota: ") == 1)
        eventually(futures[0].done)
        with real_team.occupied():
            eventually(lambda: count(JobState.TIMEOUT, "evicted"))
            assert not all(future.done() for future in futures)
        assert [int(future.result(timeout=120)) for future in futures] == list(range(8))


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.3)
