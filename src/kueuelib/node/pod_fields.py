"""Which fields of a pod the node honours, and which it refuses. Pure.

`docs/node.md` shows the table, and a test compares it with the schema of pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

_UNSET: Final[tuple[Any, ...]] = (None, False, "", (), [], {}, 0)


@attrs.frozen
class FieldRule:
    """What happens to a field.

    Attributes:
        text: for the documentation, and for the Event of a refused pod.
        allowed: the values that are accepted; None: all.
        inside: the name of the message in `FIELDS` whose rules apply to the value, or its items.
    """

    text: str = ""
    allowed: tuple[Any, ...] | None = None
    inside: str = ""


HONOURED: Final = FieldRule("honoured")


def _refused(text: str, *allowed: Any) -> FieldRule:
    return FieldRule(text, (*_UNSET, *allowed))


def _into(message: str) -> FieldRule:
    return FieldRule("honoured", inside=message)


_NAMES: Final = FieldRule("names resolve as on the host, and to Services")
_SCHEDULER: Final = FieldRule("used by the scheduler")
_USER: Final = "processes run as the user of the node"
_REMOTE: Final = _refused("the node has no volumes of this kind")
_LINKS: Final = "refused for an emptyDir or a claim, where a link could lead out of it"
_UNLABELLED: Final = _refused("processes inherit the labels and profiles of the node")
_USER_OF_FILE: Final = _refused("the user of the node owns all files")

FIELDS: Final[Mapping[str, Mapping[str, FieldRule]]] = {
    "PodSpec": {
        "volumes": _into("Volume"),
        "containers": _into("Container"),
        "initContainers": _into("Container"),
        "restartPolicy": HONOURED,
        "terminationGracePeriodSeconds": HONOURED,
        "activeDeadlineSeconds": HONOURED,
        "dnsPolicy": _NAMES,
        "nodeSelector": _SCHEDULER,
        "serviceAccountName": HONOURED,
        "serviceAccount": HONOURED,
        "nodeName": _SCHEDULER,
        "hostNetwork": _refused("a pod has an address of its own"),
        "hostPID": _refused("a pod does not see the processes of the host"),
        "hostIPC": _refused("a pod does not share memory with the host"),
        "securityContext": _into("PodSecurityContext"),
        "imagePullSecrets": FieldRule("images are folders; nothing is pulled"),
        "hostname": HONOURED,
        "subdomain": _NAMES,
        "affinity": _SCHEDULER,
        "schedulerName": _SCHEDULER,
        "automountServiceAccountToken": HONOURED,
        "tolerations": _SCHEDULER,
        "hostAliases": HONOURED,
        "priorityClassName": _SCHEDULER,
        "priority": _SCHEDULER,
        "dnsConfig": _refused("pods use the resolver of the host"),
        "shareProcessNamespace": _refused("each container has its own process namespace"),
        "readinessGates": HONOURED,
        "runtimeClassName": _refused("the node has only one runtime"),
        "enableServiceLinks": HONOURED,
        "preemptionPolicy": _SCHEDULER,
        "overhead": _SCHEDULER,
        "topologySpreadConstraints": _SCHEDULER,
        "ephemeralContainers": _refused("the node does not run them; use kubectl exec"),
        "setHostnameAsFQDN": _refused("host names of pods have no domain"),
        "os": FieldRule("the node runs on Linux", (*_UNSET, {"name": "linux"})),
        "hostUsers": FieldRule(
            "the node does not offer the user namespace of the host", (None, False)
        ),
        "schedulingGates": _SCHEDULER,
        "resourceClaims": _refused("the node has no devices"),
        "resources": _SCHEDULER,
        "hostnameOverride": HONOURED,
        "schedulingGroup": _SCHEDULER,
        "evictionResponders": _refused("the node ends pods without asking responders"),
    },
    "PodSecurityContext": {
        "seLinuxOptions": _UNLABELLED,
        "runAsUser": FieldRule(_USER, (None, "uid")),
        "runAsNonRoot": HONOURED,
        "supplementalGroups": _refused(_USER),
        "fsGroup": FieldRule(_USER, (None, "gid")),
        "runAsGroup": FieldRule(_USER, (None, "gid")),
        "sysctls": _refused("pods share the kernel of the host"),
        "windowsOptions": _refused("the node runs on Linux"),
        "fsGroupChangePolicy": HONOURED,
        "seccompProfile": _into("SeccompProfile"),
        "appArmorProfile": _UNLABELLED,
        "supplementalGroupsPolicy": HONOURED,
        "seLinuxChangePolicy": HONOURED,
    },
    "SeccompProfile": {
        "type": FieldRule(
            "RuntimeDefault does not filter system calls", (None, "RuntimeDefault", "Unconfined")
        ),
        "localhostProfile": _refused("the node has no seccomp profiles"),
    },
    "SecurityContext": {
        "capabilities": _into("Capabilities"),
        "privileged": _refused(_USER),
        "seLinuxOptions": _UNLABELLED,
        "runAsUser": FieldRule(_USER, (None, "uid")),
        "runAsNonRoot": HONOURED,
        "readOnlyRootFilesystem": FieldRule("always so in the sandbox"),
        "allowPrivilegeEscalation": FieldRule("never possible in the sandbox"),
        "runAsGroup": FieldRule(_USER, (None, "gid")),
        "procMount": FieldRule("the sandbox mounts /proc", (*_UNSET, "Default")),
        "windowsOptions": _refused("the node runs on Linux"),
        "seccompProfile": _into("SeccompProfile"),
        "appArmorProfile": _UNLABELLED,
    },
    "Capabilities": {"add": _refused(_USER), "drop": HONOURED},
    "Container": {
        "name": HONOURED,
        "image": FieldRule("stands for a folder; see `--image`"),
        "command": HONOURED,
        "args": HONOURED,
        "workingDir": HONOURED,
        "ports": _into("ContainerPort"),
        "env": _into("EnvVar"),
        "resources": _into("ResourceRequirements"),
        "volumeMounts": _into("VolumeMount"),
        "livenessProbe": _into("Probe"),
        "readinessProbe": _into("Probe"),
        "lifecycle": _into("Lifecycle"),
        "terminationMessagePath": HONOURED,
        "imagePullPolicy": FieldRule("images are folders; nothing is pulled"),
        "securityContext": _into("SecurityContext"),
        "stdin": HONOURED,
        "stdinOnce": HONOURED,
        "tty": HONOURED,
        "envFrom": HONOURED,
        "terminationMessagePolicy": HONOURED,
        "volumeDevices": _refused("the node has no devices"),
        "startupProbe": _into("Probe"),
        "resizePolicy": FieldRule("containers are not resized"),
        "restartPolicy": FieldRule("only Always, and only for init containers"),
        "restartPolicyRules": _refused("the restart policy of the pod applies"),
    },
    "ContainerPort": {
        "name": HONOURED,
        "hostPort": _refused("a pod has an address of its own"),
        "containerPort": FieldRule("an Event reports a port that is in use"),
        "protocol": HONOURED,
        "hostIP": _refused("a pod has an address of its own"),
    },
    "EnvVar": {"name": HONOURED, "value": HONOURED, "valueFrom": _into("EnvVarSource")},
    "EnvVarSource": {
        "fieldRef": HONOURED,
        "resourceFieldRef": HONOURED,
        "configMapKeyRef": HONOURED,
        "secretKeyRef": HONOURED,
        "fileKeyRef": _refused("use a ConfigMap or a Secret"),
    },
    "ResourceRequirements": {
        "limits": FieldRule("memory becomes RLIMIT_AS; others are not enforced"),
        "requests": _SCHEDULER,
        "claims": _refused("the node has no devices"),
    },
    "VolumeMount": {
        "name": HONOURED,
        "readOnly": HONOURED,
        "mountPath": HONOURED,
        "subPath": FieldRule(_LINKS),
        "mountPropagation": FieldRule("mounts do not propagate", (*_UNSET, "None")),
        "subPathExpr": FieldRule(_LINKS),
        "recursiveReadOnly": HONOURED,
        "bindMountOptions": _refused("mounts are always nosuid and nodev"),
    },
    "Probe": {
        "exec": HONOURED,
        "httpGet": _into("HTTPGetAction"),
        "tcpSocket": HONOURED,
        "grpc": _refused("use exec, httpGet or tcpSocket"),
        "initialDelaySeconds": HONOURED,
        "timeoutSeconds": HONOURED,
        "periodSeconds": HONOURED,
        "successThreshold": HONOURED,
        "failureThreshold": HONOURED,
        "terminationGracePeriodSeconds": HONOURED,
    },
    "HTTPGetAction": {
        "path": HONOURED,
        "port": HONOURED,
        "host": HONOURED,
        "scheme": HONOURED,
        "httpHeaders": HONOURED,
        "protocol": FieldRule("probes and hooks use HTTP/1.1", (*_UNSET, "HTTP1")),
    },
    "Lifecycle": {
        "postStart": _into("LifecycleHandler"),
        "preStop": _into("LifecycleHandler"),
        "stopSignal": HONOURED,
    },
    "LifecycleHandler": {
        "exec": HONOURED,
        "httpGet": _into("HTTPGetAction"),
        "tcpSocket": _refused("kubelets do not support it in hooks"),
        "sleep": HONOURED,
    },
    "Volume": {
        "name": HONOURED,
        "hostPath": _refused("pods do not see the host's files"),
        "emptyDir": _into("EmptyDirVolumeSource"),
        "secret": _into("SecretVolumeSource"),
        "downwardAPI": _into("DownwardAPIVolumeSource"),
        "configMap": _into("ConfigMapVolumeSource"),
        "projected": _into("ProjectedVolumeSource"),
        "persistentVolumeClaim": _into("PersistentVolumeClaimVolumeSource"),
        **dict.fromkeys(
            (
                *("gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi"),
                *("glusterfs", "rbd", "flexVolume", "cinder", "cephfs"),
                *("flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk"),
                *("photonPersistentDisk", "portworxVolume", "scaleIO", "storageos", "csi"),
                *("ephemeral", "image"),
            ),
            _REMOTE,
        ),
    },
    "EmptyDirVolumeSource": {
        "medium": _refused("an emptyDir is a folder of the node"),
        "sizeLimit": _refused("the node does not limit the size of folders"),
        "mode": HONOURED,
    },
    "PersistentVolumeClaimVolumeSource": {
        "claimName": FieldRule("stands for a folder; see `--claim`"),
        "readOnly": HONOURED,
    },
    "SecretVolumeSource": {
        **dict.fromkeys(("secretName", "items", "defaultMode", "optional"), HONOURED),
        "defaultUser": _USER_OF_FILE,
    },
    "ConfigMapVolumeSource": {
        **dict.fromkeys(("name", "items", "defaultMode", "optional"), HONOURED),
        "defaultUser": _USER_OF_FILE,
    },
    "DownwardAPIVolumeSource": {
        **dict.fromkeys(("items", "defaultMode"), HONOURED),
        "defaultUser": _USER_OF_FILE,
    },
    "ProjectedVolumeSource": {
        "sources": _into("VolumeProjection"),
        "defaultMode": HONOURED,
        "defaultUser": _USER_OF_FILE,
    },
    "VolumeProjection": {
        **dict.fromkeys(("secret", "downwardAPI", "configMap", "serviceAccountToken"), HONOURED),
        "clusterTrustBundle": _refused("the node issues no certificates"),
        "podCertificate": _refused("the node issues no certificates"),
    },
}
"""The rule of each field of a message of core/v1, by its JSON name."""


_SANDBOXED: Final = (("readOnlyRootFilesystem", True), ("allowPrivilegeEscalation", False))
"""What only the sandbox does."""


@attrs.frozen
class NodeAbilities:
    """What the rules depend on: the sandbox, the user and group of the node, folders of claims."""

    sandbox: bool
    uid: int
    gid: int
    claims: Mapping[str, Path] = attrs.field(factory=dict)


def refusals(pod: Mapping[str, Any], node: NodeAbilities) -> tuple[str, ...]:
    """What the node does not do for a pod: each with its field and why.

    Args:
        pod: raw.
        node: what it can do.
    """
    spec = pod["spec"]
    problems = list(_walk(spec, "PodSpec", "spec", node))
    shared = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim is not None and claim not in node.claims:
            path = f"spec.volumes[{index}].persistentVolumeClaim.claimName"
            problems.append(
                f"{path}: {json.dumps(claim)}: no folder stands for it: use --claim {claim}=FOLDER"
            )
        if claim is not None or "emptyDir" in volume:
            shared.add(volume["name"])
    for kind in ("initContainers", "containers"):
        for index, each in enumerate(spec.get(kind) or ()):
            path = f"spec.{kind}[{index}]"
            allowed = (None, "Always") if kind == "initContainers" else (None,)
            if (policy := each.get("restartPolicy") or None) not in allowed:
                text = FIELDS["Container"]["restartPolicy"].text
                problems.append(f"{path}.restartPolicy: {policy!r}: {text}")
            for number, mount in enumerate(each.get("volumeMounts") or ()):
                at = f"{path}.volumeMounts[{number}]"
                if not node.sandbox:
                    problems.append(f"{at}: mounts need the sandbox: omit --no-sandbox")
                elif mount["name"] in shared and (mount.get("subPath") or mount.get("subPathExpr")):
                    text = FIELDS["VolumeMount"]["subPath"].text
                    problems.append(f"{at}.subPath: {mount.get('subPath')!r}: {text}")
    return tuple(problems)


def _walk(value: Any, message: str, path: str, node: NodeAbilities) -> Iterator[str]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _walk(each, message, f"{path}[{index}]", node)
        return
    rules = FIELDS[message]
    for name, given in (value or {}).items():
        rule, at = rules.get(name), f"{path}.{name}"
        if rule is None:
            yield f"{at}: the node does not know this field"
        elif rule.inside:
            yield from _walk(given, rule.inside, at, node)
        elif not node.sandbox and (name, given) in _SANDBOXED:
            yield f"{at}: {json.dumps(given)}: needs the sandbox: omit --no-sandbox"
        elif rule.allowed is not None and not _accepts(rule.allowed, given, node):
            shown = f"{json.dumps(given)}: " if isinstance(given, str | int) else ""
            yield f"{at}: {shown}{rule.text}"


def _accepts(allowed: tuple[Any, ...], given: Any, node: NodeAbilities) -> bool:
    own = {"uid": node.uid, "gid": node.gid}
    values = [own.get(each, each) if isinstance(each, str) else each for each in allowed]
    return any(given == each and type(given) is type(each) for each in values)
