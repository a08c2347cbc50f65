"""A policy webhook of somebody else is dead, so that admitted Jobs and Pods are not started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from place import Place, name_of, shared_cluster, uid_of
from rest import Obj
from test_webhook_repair import REAL
from warm import kueuelib

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
TEXT = "The API server did not accept the start, which is tried again: "


def policy() -> Obj:
    """A webhook for updates of Jobs and Pods, and nobody there to answer."""
    rules = [
        {"apiGroups": [group], "apiVersions": ["v1"], "resources": [one], "operations": ["UPDATE"]}
        for group, one in (("batch", "jobs"), ("", "pods"))
    ]
    hook = {
        "name": "policy.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": rules,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
    }
    meta = {"name": "policy"}
    return {"kind": "ValidatingWebhookConfiguration", "metadata": meta, "webhooks": [hook]}


@pytest.mark.parametrize("made", [shared_cluster, REAL])
def test_events_and_explain_say_why_a_job_does_not_start(
    made: Callable[[Path], Any], tmp_path: Path
) -> None:
    with made(tmp_path) as (cluster, rest):
        place = Place(rest)
        place.queue(4)

        def explained(obj: Obj) -> str:
            what = f"{obj['kind'].lower()}/{name_of(obj)}"
            done = kueuelib("explain", what, "-n", place.ns, "--kubeconfig", cluster.kubeconfig)
            assert done.returncode == 0, done.stderr
            return done.stdout

        rest.create(HOOKS, policy())
        kinds = {"Job": place.job()}
        if made is shared_cluster:  # the other manager queues no Pods
            kinds["Pod"] = place.pod()
        for kind, obj in kinds.items():
            held = {"kind": kind, **obj}
            workload = {"kind": "Workload", **place.admitted(held)}
            for each in (held, workload):  # explain reads the second one, which is written later
                place.event(each, "FailedToStart", f"{TEXT}Internal error occurred: failed calling")
            for each in (held, workload):
                note = f"Note: its job is not started. {TEXT}"
                assert note in explained(each)
                assert "policy.example.com" in explained(each)
        rest.delete(f"{HOOKS}/policy")
        for kind, obj in kinds.items():
            held = {"kind": kind, **obj}
            place.runs(held)
            assert "is not started" not in explained(held)
            told = [
                one
                for one in rest.items(f"/api/v1/namespaces/{place.ns}/events")
                if one["involvedObject"].get("uid") == uid_of(obj)
                and one["reason"] == "FailedToStart"
            ]
            assert len(told) == 1
