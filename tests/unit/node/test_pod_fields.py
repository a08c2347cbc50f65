"""The table of fields covers the schema, and what it refuses is refused with its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kueuelib.embedded.schema.messages import json_fields
from kueuelib.node.pod_fields import FIELDS, NodeAbilities, refusals

INSIDE = NodeAbilities(sandbox=True, uid=1000, gid=1000)
OUTSIDE = NodeAbilities(sandbox=False, uid=1000, gid=1000)


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "a", "image": "x", **(container or {})}]
    return {"spec": {"containers": containers, **spec}}


@pytest.mark.parametrize("message", FIELDS)
def test_every_field_of_the_schema_has_a_rule(message: str) -> None:
    fields = {each.name for each in json_fields(f"core.{message}")}
    assert {*FIELDS[message]} == fields


@pytest.mark.parametrize(
    ("refused", "path"),
    [
        (pod(hostNetwork=True), "spec.hostNetwork"),
        (pod(hostPID=True), "spec.hostPID"),
        (pod(hostUsers=True), "spec.hostUsers"),
        (pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "spec.volumes[0].hostPath"),
        (pod({"securityContext": {"privileged": True}}), "spec.containers[0].securityContext"),
        (pod({"securityContext": {"runAsUser": 0}}), "runAsUser: 0"),
        (pod(securityContext={"runAsUser": 1001}), "spec.securityContext.runAsUser: 1001"),
        (pod({"ports": [{"containerPort": 1, "hostPort": 1}]}), "ports[0].hostPort"),
        (pod({"restartPolicy": "Never"}), "spec.containers[0].restartPolicy"),
        (pod(somethingNew={"a": 1}), "spec.somethingNew: the node does not know this field"),
    ],
)
def test_what_is_not_honoured_is_refused(refused: dict[str, Any], path: str) -> None:
    (text,) = refusals(refused, INSIDE)
    assert path in text


def test_what_the_api_server_adds_is_accepted() -> None:
    plain = pod(
        {
            "terminationMessagePath": "/dev/termination-log",
            "imagePullPolicy": "Always",
            "resources": {"limits": {"cpu": 1}},
            "securityContext": {
                "runAsUser": 1000,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
        hostNetwork=False,
        hostUsers=False,
        os={"name": "linux"},
    )
    assert refusals(plain, INSIDE) == ()
    (text,) = refusals(plain, OUTSIDE)
    assert "allowPrivilegeEscalation: false: needs the sandbox" in text


def test_mounts_need_the_sandbox_and_links_of_an_empty_folder_lead_nowhere() -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    mounted = pod({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, volumes=volumes)
    assert refusals(mounted, INSIDE) == ()
    assert "mounts need the sandbox" in refusals(mounted, OUTSIDE)[0]
    mounted["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = "a"
    assert "subPath" in refusals(mounted, INSIDE)[0]


def test_a_claim_needs_a_folder_and_its_links_lead_nowhere() -> None:
    mount = {"name": "v", "mountPath": "/v"}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}}]
    claiming = pod({"volumeMounts": [mount]}, volumes=volumes)
    (text,) = refusals(claiming, INSIDE)
    assert "persistentVolumeClaim.claimName" in text
    assert "--claim shared=FOLDER" in text
    known = NodeAbilities(True, 1000, 1000, {"shared": Path("/srv/shared")})
    assert refusals(claiming, known) == ()
    mount["subPath"] = "a"
    assert "subPath" in refusals(claiming, known)[0]
