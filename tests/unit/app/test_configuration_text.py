"""What `--print-config` prints is read as the same configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.configuration_text import as_content, format_duration
from kueuelib.app.decoding import parse_duration
from kueuelib.cli.syntax import app

OLD, NEW = (f"config.kueue.x-k8s.io/{version}" for version in ("v1beta1", "v1beta2"))
READY = {
    "timeout": "1m30s",
    "recoveryTimeout": "10s",
    "requeuingStrategy": {"backoffLimitCount": 3},
}
CONTENTS: list[tuple[str, dict[str, Any]]] = [
    (OLD, {}),
    (NEW, {}),
    (OLD, {"waitForPodsReady": {"enable": True, **READY}, "fairSharing": {"enable": True}}),
    (OLD, {"waitForPodsReady": {"enable": True, "blockAdmission": False}}),
    (NEW, {"waitForPodsReady": READY}),
    (NEW, {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}),
    (OLD, {"waitForPodsReady": {"enable": False}, "fairSharing": {"enable": False}}),
    (NEW, {"clientConnection": {"qps": 1.5, "burst": 3}, "namespace": "q"}),
    (NEW, {"objectRetentionPolicies": {"workloads": {"afterFinished": "0s"}}}),
    (NEW, {"admissionFairSharing": {"usageHalfLifeTime": "168h", "resourceWeights": {"cpu": 0.5}}}),
    (
        NEW,
        {
            "integrations": {"frameworks": ["pod"], "externalFrameworks": ["A.v1.b.c"]},
            "managedJobsNamespaceSelector": {"matchLabels": {"a": "b"}},
            "controller": {"groupKindConcurrency": {"Job.batch": 5}},
        },
    ),
    (OLD, {"queueVisibility": {"clusterQueues": {"maxCount": 0}}}),
    (
        OLD,
        {
            "integrations": {"podOptions": {"podSelector": {"matchLabels": {"a": "b"}}}},
            "metrics": {"customLabels": [{"name": "team"}]},
            "waitForPodsReady": {"enable": True, **READY},
            "fairSharing": {"enable": False},
        },
    ),
    (OLD, {"integrations": {"podOptions": {"namespaceSelector": {}}}}),
    (
        NEW,
        {
            "integrations": {"podOptions": {"podGroupShapePolicy": "Warn"}},
            "metrics": {
                "customLabels": [{"name": "a", "sourceKind": "Workload", "trackedValues": ["b"]}]
            },
            "resources": {"quotaCheckStrategy": "IgnoreUndeclared"},
            "visibilityServer": {},
        },
    ),
    (
        NEW,
        {
            "resources": {
                "excludeResourcePrefixes": ["a/"],
                "transformations": [{"input": "b", "outputs": {"c": "1500m"}}],
            }
        },
    ),
]


def meant(found: Configuration) -> Configuration:
    """Without what is off, and with what a default stands for."""
    waiting, sharing = found.wait_for_pods_ready, found.fair_sharing
    waiting = waiting and attrs.evolve(waiting, block_admission=waiting.blocks)
    if sharing and not sharing.preemption_strategies:
        both = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
        sharing = attrs.evolve(sharing, preemption_strategies=both)
    return attrs.evolve(
        found,
        wait_for_pods_ready=waiting if waiting and waiting.enable else None,
        fair_sharing=sharing if sharing and sharing.enable else None,
        queue_visibility=None,
    )


@pytest.mark.parametrize(("version", "content"), CONTENTS)
def test_it_is_read_as_the_same(version: str, content: dict[str, Any]) -> None:
    first = parse_configuration({"apiVersion": version, "kind": "Configuration", **content}, "a")
    printed = as_content(first)
    options = content.get("integrations", {}).get("podOptions", {})
    only_old = options.keys() & {"podSelector", "namespaceSelector"}
    assert printed["apiVersion"] == (OLD if only_old else NEW)
    again = parse_configuration(yaml.safe_load(yaml.safe_dump(printed)), "b")
    assert meant(again) == meant(first)
    assert as_content(again) == printed


@given(st.integers(0, 10**15))
def test_a_duration_is_read_as_the_same(microseconds: int) -> None:
    text = format_duration(microseconds / 1e6)
    assert round(parse_duration(text) * 1e6) == microseconds


def test_the_command_prints_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"apiVersion: {OLD}\nkind: Configuration\nmetrics: {{bindAddress: ':1'}}\n")
    done = CliRunner().invoke(app, ["manager", "--print-config", "--config", str(path)])
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.output)["metrics"]["bindAddress"] == ":1"
