"""DAGs of one task each, in the queue of namespace $TEAM; pods of `real` and `skip` have code."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG

from kueuelib.integrations.airflow import QueuedJobOperator, QueuedPodOperator

RUN = "kueuelib.dev/run-seconds"
CODE = """
import time
for number in range({seconds}):
    print("line", number, flush=True)
    time.sleep(1)
raise SystemExit({code})
"""


def task(kind: str) -> Any:
    """The task; its pod asks for the only CPU."""
    common: dict[str, Any] = {
        "task_id": "work",
        "name": "work",
        "namespace": os.environ["TEAM"],
        "image": "local",
        "annotations": {RUN: "8"},
        "config_file": os.environ["KUBECONFIG"],
        "startup_timeout_seconds": 5,
        "get_logs": False,
        "container_resources": {"requests": {"cpu": "1"}},
        "labels": {"kueue.x-k8s.io/priority-class": "low"},
        "on_finish_action": "keep_pod",
    }
    if kind in ("real", "skip"):
        seconds, code = (10, 0) if kind == "real" else (1, 3)
        common |= {
            "cmds": ["python", "-c", CODE.format(seconds=seconds, code=code)],
            "get_logs": True,
            "skip_on_exit_code": 3,
            "startup_timeout_seconds": 30,
        }
    if kind == "job":
        how = {"parallelism": 1, "wait_until_job_complete": True, "job_poll_interval": 1}
        return QueuedJobOperator(queue_name="team", **how, **common)
    if kind == "unmodified":
        common["labels"]["kueue.x-k8s.io/queue-name"] = "team"
        return KubernetesPodOperator(schedule_timeout_seconds=120, **common)
    return QueuedPodOperator(
        local_queue="team",
        deferrable=kind == "deferred",
        schedule_timeout_seconds=5,
        poll_interval=0.5,
        **common,
    )


for kind in ("pod", "deferred", "job", "unmodified", "real", "skip"):
    with DAG(kind, start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None) as dag:
        task(kind)
    globals()[kind] = dag
