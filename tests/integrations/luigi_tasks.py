"""Two tasks of Luigi whose Jobs are in the queue of namespace $TEAM; prints what became of them.

$OUTPUT names the folder of their targets, $KUBECONFIG the cluster.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import luigi
from luigi.contrib.kubernetes import KubernetesJobTask


class Work(KubernetesJobTask):  # type: ignore[misc] # the package has no types
    """Works for some seconds."""

    number = luigi.IntParameter()
    name = "work"
    kubernetes_namespace = os.environ["TEAM"]
    kubeconfig_path = os.environ["KUBECONFIG"]
    labels = {  # noqa: RUF012 - as its page shows it
        "kueue.x-k8s.io/queue-name": "team",
        "kueue.x-k8s.io/priority-class": "low",
    }
    poll_interval = 1
    pod_creation_wait_interal = 60
    backoff_limit = 0
    print_pod_logs_on_exit = True

    @property
    def spec_schema(self) -> dict[str, Any]:
        """The pod."""
        container = {
            "name": "c",
            "image": "local",
            "command": ["sh", "-c", f"sleep 4; echo {self.number} is done"],
            "resources": {"requests": {"cpu": "1"}},
        }
        return {"containers": [container]}

    def signal_complete(self) -> None:
        """Writes the target."""
        with self.output().open("w") as file:
            file.write("")

    def output(self) -> luigi.LocalTarget:
        """The target."""
        return luigi.LocalTarget(f"{os.environ['OUTPUT']}/{self.number}")


if __name__ == "__main__":
    how = {"local_scheduler": True, "workers": 2, "log_level": "INFO"}
    sys.exit(0 if luigi.build([Work(1), Work(2)], **how) else 1)
