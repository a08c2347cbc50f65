"""The page of all configuration keys is up to date, and says of every key what becomes of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import MISSING, parse_configuration
from kueuelib.app.configuration_text import ONLY_IN, format_duration
from kueuelib.app.decoding import Duration
from kueuelib.errors import ConfigError

from .configuration_table import (
    BLOCKS,
    DEFAULTS,
    FACTS,
    KEY_TESTS,
    PAGE,
    REFUSED,
    SHOWN,
    difference,
    keys,
    page,
    versions_of,
)
from .named_tests import cases_of, is_test, names_in

UPSTREAM = yaml.load(FACTS.read_text(encoding="utf-8"), yaml.CSafeLoader)
EVERY = [*UPSTREAM["both"], *UPSTREAM["v1beta1"], *UPSTREAM["v1beta2"]]
READY = {"timeout": "5m"}
REQUIRED: dict[str, Any] = {
    "waitForPodsReady v1beta2": READY,
    "fairSharing v1beta2": {"preemptionStrategies": ["LessThanInitialShare"]},
    "metrics": {"customLabels": [{"name": "a"}]},
    "resources": {"transformations": [{"input": "a"}]},
}
"""What a block needs besides the key that is tried."""

ROWS = dict(keys(Configuration))
SAMPLES: dict[str, Any] = {
    "clientConnection.burst": 1,
    "clientConnection.qps": 1.5,
    "fairSharing.preemptionStrategies": ["LessThanInitialShare"],
    "managedJobsNamespaceSelector": {"matchLabels": {"a": "b"}},
    "metrics.customLabels[].name": "a",
    "metrics.customLabels[].sourceAnnotationKey": "example.com/a",
    "metrics.customLabels[].sourceLabelKey": "example.com/a",
    "metrics.localQueueMetrics.localQueueSelector": {},
    "integrations.podOptions.namespaceSelector": {"matchLabels": {"a": "b"}},
    "objectRetentionPolicies.workloads.afterDeactivatedByKueue": "1h",
    "objectRetentionPolicies.workloads.afterFinished": "1h",
    "resources.transformations[].input": "a",
    "waitForPodsReady.blockAdmission": True,
    "waitForPodsReady.recoveryTimeout": "1m",
    "waitForPodsReady.requeuingStrategy.backoffLimitCount": 1,
}
"""Values of keys without a default, or where the default says nothing."""


def sample(path: str) -> Any:
    """A value for a key."""
    default = SAMPLES.get(path, ROWS.get(path))
    if path in REFUSED:
        return REFUSED[path][1]
    if isinstance(default, Duration):
        return format_duration(default)
    return {"tuple": list, "dict": dict}.get(type(default).__name__, lambda found: found)(default)


def parse(path: str, value: Any, version: str) -> Configuration:
    """A configuration with one key, and with others that its block requires."""
    top = path.split(".", maxsplit=1)[0].removesuffix("[]")
    required = REQUIRED.get(f"{top} {version}", REQUIRED.get(top, {}))
    content: dict[str, Any] = {top: copy.deepcopy(required)} if required else {}
    *parents, last = path.split(".")
    block = content
    for name in parents:
        if name.endswith("[]"):
            (block,) = block.setdefault(name.removesuffix("[]"), [{}])
        else:
            block = block.setdefault(name, {})
    block[last] = value
    head = {"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration"}
    return parse_configuration({**head, **content}, "test")


def test_the_page_is_what_is_generated() -> None:
    command = "python tests/unit/docs/configuration_table.py > docs/configuration.md"
    assert PAGE.read_text() == page(), f"run `{command}`"


DIFFERENT = {
    "clientConnection.burst",
    "clientConnection.qps",
    "metrics.localQueueMetrics.enable",
    "queueVisibility.clusterQueues.maxCount",
    "queueVisibility.updateIntervalSeconds",
    "visibilityServer",
    "waitForPodsReady",
    "waitForPodsReady.recoveryTimeout",
    "waitForPodsReady.timeout",
}
"""The keys and blocks whose default is another one than Kueue's."""


def test_all_other_defaults_are_those_of_kueue() -> None:
    paths = [*BLOCKS, *(path for path in EVERY if not is_missing(path))]
    assert {path for version in DEFAULTS.values() for path in version} == {*paths}
    assert {path for path in paths if difference(path)} == DIFFERENT


@pytest.mark.parametrize("path", [*REFUSED, *MISSING])
def test_what_the_page_calls_refused_is_refused_with_its_name(path: str) -> None:
    value = REFUSED[path][1] if path in REFUSED else {}
    for version in ("v1beta1", "v1beta2"):
        with pytest.raises(ConfigError) as refused:
            parse(path, value, version)
        assert path.split(".", maxsplit=1)[0] in str(refused.value)
        assert "unknown key" not in str(refused.value)


def test_every_honoured_key_has_a_test_that_fails_without_it() -> None:
    assert "test_a_key_reaches_its_part" in names_in(KEY_TESTS)
    assert cases_of(KEY_TESTS, "CASES") ^ {*SHOWN} == {*ROWS} - {*REFUSED}
    assert all(map(is_test, SHOWN.values()))


@pytest.mark.parametrize("path", ONLY_IN)
def test_a_key_of_one_version_is_refused_in_the_other(path: str) -> None:
    other = ({"v1beta1", "v1beta2"} - {versions_of(path)}).pop()
    with pytest.raises(ConfigError, match=r"is not a key of|is not available"):
        parse(path, {}, other)


def is_missing(path: str) -> bool:
    return any(path == each or path.startswith((f"{each}.", f"{each}[]")) for each in MISSING)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize("path", EVERY)
def test_a_key_of_kueue_is_accepted_or_refused_as_the_page_says(path: str, version: str) -> None:
    value, exists = sample(path), path in (*UPSTREAM["both"], *UPSTREAM[version])
    if exists and path not in REFUSED and not is_missing(path):
        assert value is not None
        assert parse(path, value, version)
        return
    with pytest.raises(ConfigError) as refused:
        parse(path, {} if value is None else value, version)
    if exists:
        assert "unknown key" not in str(refused.value)
    else:
        assert is_missing(path) or f"is not a key of config.kueue.x-k8s.io/{version}" in str(
            refused.value
        )


def test_the_page_has_every_key_of_kueue_with_its_versions() -> None:
    rows = {path: versions_of(path) for path in (*ROWS, *MISSING)}
    for version in ("both", "v1beta1", "v1beta2"):
        for path in UPSTREAM[version]:
            row = next(
                each for each in rows if path == each or path.startswith((f"{each}.", f"{each}[]"))
            )
            assert rows[row] == version or is_missing(path), path
