"""Dagster: runs whose Jobs wait for quota.

    run_launcher:
      module: kueuelib.integrations.dagster
      class: QueuedK8sRunLauncher
      config:
        local_queue: team

Only the Job of a run is in the queue. Steps of `k8s_job_executor` have Jobs of their own. In the
same queue, they would wait for the quota that their run holds. To queue them, name a queue with its
own quota in the configuration of the executor: `labels: {kueue.x-k8s.io/queue-name: steps}`. Run
workers load the launcher, so their image needs kueuelib, too. The process that launches runs also
needs `get`, `list` and `watch` on Workloads.

The event log of a run says why it waits, its place and its expected start. Time in the queue does
not count towards `run_monitoring.start_timeout_seconds`, as long as the process that launched the
run lives: it begins the start of the run again, at least three times in each start timeout. Use at
least 10 s on a busy machine. A run whose Job is preempted fails, and `run_retries` starts
another one. Tested with dagster 1.13 and dagster-k8s 0.29.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

from dagster import (
    DagsterEvent,
    DagsterEventType,
    DagsterRun,
    DagsterRunStatus,
    EventLogEntry,
    Field,
    StringSource,
)
from dagster_k8s import K8sRunLauncher
from dagster_k8s.container_context import K8sContainerContext

from kueuelib import JobGone, Progress, sync
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.errors import KueuelibError, NotFound
from kueuelib.integrations.waiting import Reasons, waits

MOST_SECONDS = 30.0
"""Between two looks at a Job that waits, and for one; with a short start timeout, a third of it."""


def longest(limit: float) -> float:
    """The most seconds between looks at a Job, and for one; two thirds of the limit in all.

    Args:
        limit: the start timeout in seconds; 0 for none.
    """
    return min(MOST_SECONDS, limit / 3) if limit else MOST_SECONDS


def looks(limit: float) -> Iterator[float]:
    """The seconds between looks at a Job: short at first, when its Workload has no reason yet.

    Args:
        limit: the start timeout in seconds; 0 for none.
    """
    pause = 1.0
    while True:
        yield min(pause, longest(limit))
        pause = min(2 * pause, MOST_SECONDS)


class QueuedK8sRunLauncher(K8sRunLauncher):
    """A K8sRunLauncher whose runs are in a LocalQueue.

    Args:
        local_queue: the LocalQueue, unless a code location or a run names another one.
        arguments: the others of `K8sRunLauncher`.
    """

    def __init__(self, local_queue: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._queued = K8sContainerContext(labels={QUEUE_LABEL: local_queue})

    @classmethod
    def config_type(cls) -> Any:
        """The configuration of `K8sRunLauncher`, and the queue."""
        return {**super().config_type(), "local_queue": Field(StringSource)}

    def get_container_context_for_run(self, dagster_run: DagsterRun) -> K8sContainerContext:
        """The context of a run, in the queue; steps inherit that of the launcher, which is not."""
        return self._queued.merge(super().get_container_context_for_run(dagster_run))

    def _launch_k8s_job_with_args(self, job_name: str, args: Any, run: DagsterRun) -> None:
        super()._launch_k8s_job_with_args(job_name, args, run)
        namespace = self.get_container_context_for_run(run).namespace
        job = {"kind": "Job", "name": job_name, "namespace": namespace}
        threading.Thread(target=self._follow, args=(job, run), daemon=True).start()

    def _follow(self, job: dict[str, Any], run: DagsterRun) -> None:
        """Reports why a Job waits, and begins the run's start again, until it leaves the queue.

        A run that waited continues to wait while its state is unknown.
        """
        limit = self._instance.run_monitoring_start_timeout_seconds
        report = Reasons(lambda text: self._instance.report_engine_event(text, run, cls=type(self)))
        where = self._api_client.batch_api.api_client
        progress: Progress | None = None
        for pause in looks(limit):
            due = time.monotonic() + pause
            try:
                progress = sync.queue_state(job, kubeconfig=where, timeout=longest(limit))
            except (NotFound, JobGone):
                return
            except (KueuelibError, TimeoutError) as error:
                self._instance.report_engine_event(
                    f"The state in the queue is unknown: {error}", run
                )
            else:
                report(progress)
            if self._has_started(run):
                return
            if progress is not None:
                self.start_again(run, progress.text)
                if not waits(progress):
                    return
            time.sleep(max(0.0, due - time.monotonic()))

    def start_again(self, run: DagsterRun, text: str) -> None:
        """Let the start timeout of a run count from now.

        Only the event log has the new start. The state of the run is left, which its worker or a
        user may change at this moment.

        Args:
            run: whose worker has not started.
            text: why.
        """
        start = DagsterEventType.PIPELINE_STARTING.value
        entry = EventLogEntry(
            error_info=None,
            level=logging.INFO,
            user_message="",
            run_id=run.run_id,
            timestamp=time.time(),
            job_name=run.job_name,
            dagster_event=DagsterEvent(start, run.job_name, message=text),
        )
        self._instance.event_log_storage.store_event(entry)

    def _has_started(self, run: DagsterRun) -> bool:
        now = self._instance.get_run_by_id(run.run_id)
        return now is None or now.status is not DagsterRunStatus.STARTING
