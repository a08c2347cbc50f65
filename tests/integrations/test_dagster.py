"""Dagster's launcher in a queue; the Job of a run is simulated, and starts no run worker."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("dagster_k8s", reason="nox -s integrations installs it")

from dagster import (
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunRecord,
    job,
    reconstructable,
)
from dagster._core.launcher import LaunchRunContext
from dagster._core.test_utils import create_run_for_test, instance_for_test
from dagster._daemon.monitoring.run_monitoring import monitor_canceling_run, monitor_starting_run
from dagster_k8s.container_context import K8sContainerContext
from team import Looks, Team

from kueuelib.integrations.dagster import QueuedK8sRunLauncher, looks

START_TIMEOUT = 10
CANCEL_TIMEOUT = 5


@job
def nothing() -> None:
    """What the run is of."""


@pytest.mark.parametrize(
    ("limit", "expected"), [(180, [1, 2, 4, 8, 16, 30, 30]), (0, [1, 2, 4, 8]), (1.5, [0.5, 0.5])]
)
def test_the_first_looks_at_a_job_follow_quickly(limit: float, expected: list[float]) -> None:
    assert list(itertools.islice(looks(limit), len(expected))) == expected


def queue_of(context: K8sContainerContext) -> str | None:
    labels = context.run_k8s_config.job_metadata.get("labels", {})
    return labels.get("kueue.x-k8s.io/queue-name")


@contextmanager
def instance_of(team: Team) -> Iterator[tuple[DagsterInstance, DagsterRun]]:
    """An instance whose runs are in the queue, and a run that is about to be launched."""
    config = {
        "local_queue": "team",
        "service_account_name": "default",
        "instance_config_map": "instance",
        "dagster_home": "/opt/dagster",
        "job_image": "local",
        "job_namespace": team.namespace,
        "load_incluster_config": False,
        "kubeconfig_file": team.kubeconfig,
        "resources": {"requests": {"cpu": "1"}},
    }
    queued_launcher = {
        "module": "kueuelib.integrations.dagster",
        "class": "QueuedK8sRunLauncher",
        "config": config,
    }
    monitoring = {
        "enabled": True,
        "start_timeout_seconds": START_TIMEOUT,
        "cancel_timeout_seconds": CANCEL_TIMEOUT,
    }
    overrides = {"run_launcher": queued_launcher, "run_monitoring": monitoring}
    with instance_for_test(overrides=overrides) as instance:
        origin = reconstructable(nothing).get_python_origin()
        run = create_run_for_test(instance, job_name="nothing", job_code_origin=origin)
        starting = DagsterEventType.PIPELINE_STARTING.value
        instance.report_dagster_event(DagsterEvent(starting, run.job_name), run.run_id)
        yield instance, run


def record_of(instance: DagsterInstance, run: DagsterRun) -> RunRecord:
    record = instance.get_run_record_by_id(run.run_id)
    assert record is not None
    return record


def texts_of(instance: DagsterInstance, run: DagsterRun) -> list[str]:
    return [entry.user_message or entry.message for entry in instance.all_logs(run.run_id)]


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_a_run_waits_longer_than_its_start_timeout_and_says_why(team: Team) -> None:
    with instance_of(team) as (instance, run):
        launcher = instance.run_launcher
        assert isinstance(launcher, QueuedK8sRunLauncher)
        of_run = launcher.get_container_context_for_run(run)
        of_steps = K8sContainerContext.create_for_run(run, launcher, include_run_tags=False)
        assert queue_of(of_run) == "team"
        assert queue_of(of_steps) is None, "steps would wait for the quota of their own run"

        with team.occupied():
            launcher.launch_run(LaunchRunContext(run, workspace=None))

            def latest() -> str:
                record = record_of(instance, run)
                monitor_starting_run(instance, record, logging.getLogger())
                assert record.dagster_run.status is DagsterRunStatus.STARTING
                return texts_of(instance, run)[-1]

            looks = Looks.at(team, "Dagster", latest, 10 * START_TIMEOUT)
            assert looks.lapses == 0, looks
        until(lambda: any(" in ClusterQueue " in text for text in texts_of(instance, run)))
        assert launcher.terminate(run.run_id)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (DagsterEventType.PIPELINE_START, DagsterRunStatus.STARTED),
        (DagsterEventType.PIPELINE_CANCELING, DagsterRunStatus.CANCELING),
    ],
)
def test_a_run_that_changes_while_its_timeout_begins_again_keeps_its_state(
    team: Team, event: DagsterEventType, status: DagsterRunStatus
) -> None:
    with instance_of(team) as (instance, run):
        launcher = instance.run_launcher
        assert isinstance(launcher, QueuedK8sRunLauncher)
        instance.report_dagster_event(DagsterEvent(event.value, run.job_name), run.run_id)
        before = instance.get_run_stats(run.run_id).launch_time
        launcher.start_again(run, "Running in ClusterQueue team")
        after = instance.get_run_stats(run.run_id).launch_time
        assert before is not None
        assert after is not None
        assert after > before
        assert record_of(instance, run).dagster_run.status is status


def test_a_run_is_canceled_while_it_waits(team: Team) -> None:
    with instance_of(team) as (instance, run), team.occupied():
        instance.run_launcher.launch_run(LaunchRunContext(run, workspace=None))
        until(lambda: any("Waiting for quota: " in text for text in texts_of(instance, run)))
        assert instance.run_launcher.terminate(run.run_id)
        until(lambda: team.jobs() == [])
        time.sleep(CANCEL_TIMEOUT)
        record = record_of(instance, run)
        assert record.dagster_run.status is DagsterRunStatus.CANCELING
        monitor_canceling_run(instance, record, logging.getLogger())
        assert record_of(instance, run).dagster_run.status is DagsterRunStatus.CANCELED
