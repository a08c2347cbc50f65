"""The environment, command and files of a container."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import attrs
import pytest

from kueuelib.api.kinds import CONFIG_MAPS, SECRETS
from kueuelib.node.environment import (
    ContainerConfigError,
    Surroundings,
    command_of,
    expand,
    files_of,
    object_refs,
    token_requests,
    variables_of,
)

POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"app": "x", "tier": 'a"b'},
        "annotations": {"note": "y"},
    },
    "spec": {
        "nodeName": "local",
        "containers": [
            {"name": "a", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}},
        ],
    },
    "status": {"podIP": "127.64.0.1", "hostIP": "127.0.0.1"},
}
AROUND = Surroundings(
    POD,
    objects={
        (CONFIG_MAPS, "c"): {"data": {"k": "v", "other": "w"}, "binaryData": {"b": "AAE="}},
        (SECRETS, "s"): {"data": {"password": b64encode(b"hidden").decode()}},
    },
    allocatable={"cpu": "2", "memory": "1Gi"},
    services={"KUBERNETES_SERVICE_HOST": "127.0.0.1"},
    tokens={("", 3600): "t0", ("vault", 600): "t1"},
)


def values(*env: dict[str, Any], **container: Any) -> dict[str, str]:
    found = variables_of(AROUND, {"name": "a", "env": list(env), **container})
    assert found.pop("KUBERNETES_SERVICE_HOST") == "127.0.0.1"
    return found


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "p"),
        ({"fieldRef": {"fieldPath": "metadata.labels['app']"}}, "x"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['no']"}}, ""),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "127.64.0.1"),
        ({"fieldRef": {"fieldPath": "spec.serviceAccountName"}}, "default"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "2"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, "1500"),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}, "64"),
        ({"resourceFieldRef": {"resource": "requests.memory"}}, "0"),
        ({"configMapKeyRef": {"name": "c", "key": "k"}}, "v"),
        ({"secretKeyRef": {"name": "s", "key": "password"}}, "hidden"),
    ],
)
def test_a_variable_from_somewhere(source: dict[str, Any], value: str) -> None:
    assert values({"name": "X", "valueFrom": source}) == {"X": value}


def test_variables_refer_to_earlier_ones_and_all_of_an_object_can_be_taken() -> None:
    found = values(
        {"name": "A", "value": "1$(C_k)"},
        {"name": "B", "value": "$(A)-$(LATER)-$$(A)"},
        {"name": "LATER", "value": "x"},
        {
            "name": "GONE",
            "valueFrom": {"secretKeyRef": {"name": "z", "key": "k", "optional": True}},
        },
        envFrom=[{"prefix": "C_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}],
    )
    assert found["B"] == "1v-$(LATER)-$(A)"
    assert {"C_k", "C_other", "password"} < found.keys()
    assert "GONE" not in found


@pytest.mark.parametrize(
    ("container", "problem"),
    [
        ({"envFrom": [{"secretRef": {"name": "z"}}]}, 'secret "z" not found'),
        (
            {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "z"}}}]},
            "couldn't find key z in ConfigMap c",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.z"}}}]},
            "fieldRef.fieldPath: 'spec.z'",
        ),
        ({"env": [{"name": f"X{each}", "value": ""} for each in range(2001)]}, "too many"),
        ({"env": [{"name": "X", "value": "a" * 1_000_001}]}, "too many"),
        ({"env": [{"name": "X", "value": "a\0b"}]}, "cannot be an environment variable"),
    ],
)
def test_what_cannot_be_an_environment(container: dict[str, Any], problem: str) -> None:
    with pytest.raises(ContainerConfigError, match=problem):
        variables_of(AROUND, {"name": "a", **container})


def test_the_command_is_expanded_and_args_alone_are_one() -> None:
    assert expand("$(A)$(B)$$(A)", {"A": "1"}) == "1$(B)$(A)"
    assert command_of({"command": ["run"], "args": ["$(A)"]}, {"A": "1"}) == ["run", "1"]
    assert command_of({"args": ["run"]}, {}) == ["run"]
    with pytest.raises(ContainerConfigError, match="no entry point"):
        command_of({}, {})


def test_files_of_every_kind_of_volume() -> None:
    token = {"path": "token", "audience": "vault", "expirationSeconds": 600}
    sources = [
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "a/b", "mode": 0o400}]}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"serviceAccountToken": token},
    ]
    projected = {"name": "v", "projected": {"sources": sources}}
    assert files_of(AROUND, projected) == {
        "a/b": (b"v", 0o400),
        "password": (b"hidden", 0o644),
        "l": (b'app="x"\ntier="a\\"b"', 0o644),
        "token": (b"t1", 0o600),
    }
    whole = {"name": "v", "configMap": {"name": "c", "defaultMode": 0o600}}
    assert files_of(AROUND, whole) == {
        "k": (b"v", 0o600),
        "other": (b"w", 0o600),
        "b": (b"\0\1", 0o600),
    }
    assert files_of(AROUND, {"name": "v", "emptyDir": {}}) is None
    secret = {"name": "v", "secret": {"secretName": "s"}}
    assert files_of(AROUND, secret) == {"password": (b"hidden", 0o644)}
    volumes = [projected, whole, secret]
    pod = {**POD, "spec": {**POD["spec"], "volumes": volumes}}
    assert object_refs(pod) == {(CONFIG_MAPS, "c"), (SECRETS, "s")}
    assert token_requests(pod) == {("", 3607), ("vault", 600)}


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", ""])
def test_files_stay_in_their_volume(path: str) -> None:
    volume = {"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": path}]}}
    with pytest.raises(ContainerConfigError, match="not a relative path"):
        files_of(AROUND, volume)


def test_a_missing_object_is_an_error_unless_it_is_optional() -> None:
    around = attrs.evolve(AROUND, objects={})
    volume = {"name": "v", "configMap": {"name": "c"}}
    with pytest.raises(ContainerConfigError, match='configmap "c" not found'):
        files_of(around, volume)
    volume["configMap"] = {"name": "c", "optional": True}  # type: ignore[assignment]
    assert files_of(around, volume) == {}
