"""The configuration files of Kueue's own repository: what they ask for is accepted or named.

Written down here are the keys and values of 12 files: the manager's (`config/components/manager`),
the chart's default one, and those of Kueue's end-to-end tests (`test/e2e/config`).
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import yaml

from kueuelib.app.configuration_reading import parse_configuration, read_configuration
from kueuelib.app.configuration_text import as_content
from kueuelib.errors import ConfigError

NEW, OLD = "config.kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v1beta1"
WORKERS = {
    "Job.batch": 5,
    "Pod": 5,
    "Workload.kueue.x-k8s.io": 10,
    "LocalQueue.kueue.x-k8s.io": 5,
    "ClusterQueue.kueue.x-k8s.io": 5,
    "ResourceFlavor.kueue.x-k8s.io": 1,
}
LIMITS = {"clientConnection": {"qps": 300, "burst": 500}}
SERVICES = ["pod", "deployment", "statefulset"]
GROUPS = "leaderworkerset.x-k8s.io/leaderworkerset"
RAY = ["ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice"]
MPI, JOB_SET = "kubeflow.org/mpijob", "jobset.x-k8s.io/jobset"
TRAIN, WRAPPER = "trainer.kubeflow.org/trainjob", "workload.codeflare.dev/appwrapper"
KUBEFLOW = [f"kubeflow.org/{name}job" for name in ("paddle", "pytorch", "tf", "xgboost", "jax")]
INSTALLED = {
    "health": {"healthProbeBindAddress": ":8081"},
    "metrics": {"bindAddress": ":8443"},
    "webhook": {"port": 9443},
    "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
    **LIMITS,
}
BLOCKS = {
    "metrics": {"enableClusterQueueResources": True},
    "leaderElection": {"leaderElect": True},
    "controller": {"groupKindConcurrency": WORKERS},
    **LIMITS,
}
SHARED = {
    "fairSharing": {
        "preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
    },
    "tls": {
        "minVersion": "VersionTLS12",
        "cipherSuites": [
            f"TLS_ECDHE_{key}_WITH_{cipher}"
            for cipher in (
                "AES_128_GCM_SHA256",
                "CHACHA20_POLY1305_SHA256",
                "AES_256_GCM_SHA384",
            )
            for key in ("ECDSA", "RSA")
        ],
    },
}
SLOW = {
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": "60s",
        "renewDeadline": "40s",
        "retryPeriod": "5s",
    }
}
SLICES, AUTOMATION = "ElasticJobsViaWorkloadSlices", "MultiKueueManagerQuotaAutomation"
MANY = ("LocalQueueMetrics", SLICES, "ConcurrentAdmission", AUTOMATION)
DEVICES = "KueueDRAIntegration"


def frameworks(*names: str) -> dict[str, Any]:
    return {"integrations": {"frameworks": ["batch/job", *names]}}


def gates(*names: str) -> dict[str, Any]:
    return {"featureGates": dict.fromkeys(names, True)}


def devices(source: str) -> dict[str, Any]:
    """A mapping whose devices count by a part of them."""
    driver = "gpu.example.com"
    selected = {"cel": {"expression": f"device.driver == '{driver}'"}}
    part = {"name": "memory", "driver": driver, "deviceSelector": selected}
    one = {"name": "gpu.memory", "deviceClassNames": [driver], "sources": [{source: part}]}
    return {"resources": {"deviceClassMappings": [one]}}


WHOLE_DEVICES = [
    {"name": name, "deviceClassNames": [f"{name}.example.com"]} for name in ("gpu", "gpu-late-dc")
]
EVERY_KIND = [MPI, *RAY, JOB_SET, *KUBEFLOW, TRAIN, WRAPPER, *SERVICES, GROUPS]
FILES: dict[str, dict[str, Any]] = {
    "manager": INSTALLED
    | {"controller": {"groupKindConcurrency": {**WORKERS, "Cohort.kueue.x-k8s.io": 1}}}
    | frameworks(MPI, *RAY, JOB_SET, WRAPPER, TRAIN, *SERVICES, GROUPS),
    "chart": INSTALLED
    | {"controller": {"groupKindConcurrency": WORKERS}}
    | frameworks(MPI, RAY[0], RAY[2], RAY[1], JOB_SET, WRAPPER, TRAIN, *SERVICES, GROUPS),
    "certmanager": {
        "apiVersion": OLD,
        **BLOCKS,
        "fairSharing": {"enable": False},
        "waitForPodsReady": {"enable": False},
        "internalCertManagement": {"enable": False},
        **frameworks(),
    },
    "default": BLOCKS | SHARED | frameworks(*EVERY_KIND) | gates(*MANY),
    "extended": BLOCKS | SHARED | SLOW | frameworks(*EVERY_KIND) | gates(*MANY),
    "dra/capacity": BLOCKS
    | frameworks("pod")
    | gates(DEVICES, f"{DEVICES}ConsumableCapacity")
    | devices("capacity"),
    "dra/counter": BLOCKS
    | frameworks("pod")
    | gates(DEVICES, f"{DEVICES}PartitionableDevices")
    | devices("counter"),
    "dra/whole-device": BLOCKS
    | frameworks("pod")
    | {"resources": {"deviceClassMappings": WHOLE_DEVICES}},
    "multikueue/baseline": BLOCKS | SHARED | frameworks(*SERVICES) | gates(AUTOMATION),
    "multikueue/extended-shard-0": BLOCKS
    | SHARED
    | SLOW
    | frameworks(MPI, JOB_SET, *KUBEFLOW, TRAIN, WRAPPER, *SERVICES, GROUPS)
    | gates(*MANY),
    "multikueue/extended-shard-1": BLOCKS
    | SHARED
    | SLOW
    | frameworks(*RAY, *SERVICES)
    | gates(*MANY),
    "multikueue/sequential": BLOCKS
    | frameworks("pod")
    | gates("LocalQueueMetrics", SLICES, AUTOMATION),
}
MISSING = {f"featureGates.{name}" for name in MANY[1:]}
REFUSED: dict[str, set[str]] = {
    "default": MISSING,
    "extended": MISSING,
    "dra/capacity": {
        "resources.deviceClassMappings",
        f"featureGates.{DEVICES}",
        f"featureGates.{DEVICES}ConsumableCapacity",
    },
    "dra/counter": {
        "resources.deviceClassMappings",
        f"featureGates.{DEVICES}",
        f"featureGates.{DEVICES}PartitionableDevices",
    },
    "dra/whole-device": {"resources.deviceClassMappings"},
    "multikueue/baseline": {f"featureGates.{AUTOMATION}"},
    "multikueue/extended-shard-0": MISSING,
    "multikueue/extended-shard-1": MISSING,
    "multikueue/sequential": MISSING - {"featureGates.ConcurrentAdmission"},
}
"""The keys that ask for features that are missing; the other files are accepted as they are."""


def said_of(content: dict[str, Any]) -> str:
    """What one attempt to read a file says; nothing if it is accepted."""
    text = yaml.safe_dump({"apiVersion": NEW, "kind": "Configuration", **content})
    try:
        read_configuration(text, "config.yaml")
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_kueue_is_accepted_or_every_key_in_its_way_is_named(name: str) -> None:
    said = said_of(FILES[name]).removeprefix("config.yaml: ")
    lines = said.splitlines()[1:] if "\n" in said else said.splitlines()
    named = [line.split()[0].removesuffix(":") for line in lines]
    assert sorted(named) == sorted(REFUSED.get(name, ()))


@pytest.mark.parametrize("name", REFUSED)
def test_without_those_keys_nothing_else_is_in_the_way(name: str) -> None:
    left = copy.deepcopy(FILES[name])
    for key in REFUSED[name]:
        block, _, inner = key.partition(".")
        del left[block][inner]
    assert said_of(left) == ""


@pytest.mark.parametrize("name", sorted(FILES.keys() - REFUSED.keys()))
def test_what_is_accepted_means_the_same_when_it_is_printed(name: str) -> None:
    content = {"apiVersion": NEW, "kind": "Configuration", **FILES[name]}
    printed = as_content(parse_configuration(content, "config.yaml"))
    assert as_content(parse_configuration(printed, "printed")) == printed


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"webook": {}}, "unknown key webook; did you mean webhook?"),
    ({"webhook": {"prot": 1}}, "unknown key webhook.prot"),
    ({"leaderElection": {"leaseDuration": 15}}, "leaderElection.leaseDuration must be a duration"),
    ({"visibilityServer": {"bindPort": "x"}}, "visibilityServer.bindPort must be a whole number"),
    ({"integrations": {"frameworks": ["a/b"]}}, "integrations.frameworks[0]: unknown framework"),
    ({"multiKueue": {"origin": "a"}}, "multiKueue is not available"),
    ({"resources": {"deviceClassMappings": []}}, "resources.deviceClassMappings is not available"),
    ({"queueVisibility": {}}, "queueVisibility is not a key of"),
    ({"fairSharing": {}}, "fairSharing.preemptionStrategies is missing"),
    ({"pprofBindAddress": ":1"}, "pprofBindAddress: only programs in Go"),
    ({"featureGates": {"MultiKueue": True, "Xyz": "on"}}, "featureGates.MultiKueue: dispatch"),
]


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(MISTAKES, 2)])
def test_two_mistakes_are_named_together(one: Any, other: Any) -> None:
    said = said_of(one[0] | other[0])
    assert one[1] in said
    assert other[1] in said


def test_rules_that_values_break_are_named_together() -> None:
    said = said_of(
        {
            "namespace": "A",
            "integrations": {"frameworks": [], "labelKeysToCopy": ["a b"]},
            "leaderElection": {"leaseDuration": "1s"},
            "controller": {"groupKindConcurrency": {"Pod": 0, "Job.batch": 0}},
            "featureGates": {"VisibilityOnDemand": True},
            "tls": {"minVersion": "1", "cipherSuites": ["a"]},
            "metrics": {
                "bindAddress": "x",
                "customLabels": [{"name": "1"}, {"name": "a", "sourceKind": "Job"}],
            },
        }
    )
    for text in (
        "12 keys are refused",
        "namespace: 'A'",
        "integrations.frameworks is empty",
        "labelKeysToCopy[0]",
        "leaderElection: ",
        "groupKindConcurrency[Pod]",
        "groupKindConcurrency[Job.batch]",
        "featureGates.VisibilityOnDemand: true",
        "tls.minVersion",
        "tls.cipherSuites[0]",
        "metrics.bindAddress: ",
        "customLabels[0].name",
        "customLabels[1].sourceKind",
    ):
        assert text in said


def test_a_mistake_does_not_seem_to_be_another_one() -> None:
    """A key that is not read says nothing about those that depend on it."""
    said = said_of({"webhook": {"certDir": "/certs"}, "internalCertManagement": {"enabled": False}})
    assert "unknown key internalCertManagement.enabled" in said
    assert "certDir" not in said
