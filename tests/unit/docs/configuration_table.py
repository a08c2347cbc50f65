"""The table of docs/configuration.md: `python tests/unit/docs/configuration_table.py > FILE`."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml

from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import MISSING, parse_configuration
from kueuelib.app.configuration_text import ONLY_IN, format_duration
from kueuelib.app.decoding import Duration, camel, is_live
from kueuelib.app.deployment import CERTIFICATES
from kueuelib.app.part_settings import job_settings
from kueuelib.machinery.selectors import from_label_selector
from kueuelib.scheduler.settings import FINAL_SHARE

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
FACTS = Path(__file__).parents[2] / "upstream" / "configuration_keys.yaml"
DEFAULTS = yaml.load(
    FACTS.with_name("configuration_defaults.yaml").read_text("utf-8"), yaml.CSafeLoader
)
OTHERWISE = {
    "integrations.podOptions.namespaceSelector": "honoured; today's Kueue ignores it",
    "integrations.podOptions.podSelector": "honoured; today's Kueue ignores it",
}
"""The keys that Kueue reads and that mean something here only."""
REFUSED: dict[str, tuple[str, Any]] = {
    "webhook.certDir": ("refused, unless `internalCertManagement.enable` is false", "/certs"),
    "pprofBindAddress": ("refused", ":1"),
    "leaderElection.resourceLock": ("anything else is refused", "endpoints"),
    "featureGates": ("[some](feature-gates.md)", {"MultiKueue": True}),
    "queueVisibility.updateIntervalSeconds": ("refused, unless `clusterQueues.maxCount` is 0", 5),
    "queueVisibility.clusterQueues.maxCount": ("any value except 0 is refused", 5),
    "multiKueue.gcInterval": ("refused", "1m"),
    "multiKueue.origin": ("refused", "a"),
}
"""The keys that are not honoured, and a value that shows it."""

KEY_TESTS = "unit/app/test_keys_take_effect.py"
SHOWN = {
    "preemption.policy": (
        "unit/app/test_preemption_policy.py::test_the_example_is_loaded_with_its_parameters"
    ),
    "preemption.parameters": (
        "unit/app/test_preemption_policy.py::test_the_example_is_loaded_with_its_parameters"
    ),
}
"""The tests of honoured keys that are no case in `CASES` of that file."""

REQUIRED = {"waitForPodsReady.timeout": "5m", "fairSharing.preemptionStrategies": [FINAL_SHARE]}
"""The keys that `v1beta2` requires, and a value."""
BLOCKS: dict[str, Callable[[Configuration], bool]] = {
    "admissionFairSharing": lambda found: found.admission_fair_sharing is not None,
    "fairSharing": lambda found: found.fair_sharing is not None,
    "metrics.localQueueMetrics": lambda found: found.metrics.local_queue_metrics.enable,
    "visibilityServer": lambda found: found.visibility_server is not None,
    "waitForPodsReady": lambda found: found.wait_for_pods_ready is not None,
}
"""The blocks that turn something on, and whether it is on."""
DERIVED: dict[str, Callable[[Configuration], Any]] = {
    "namespace": lambda found: found.manager_namespace,
    "leaderElection.resourceNamespace": lambda found: found.lease.namespace,
    "managedJobsNamespaceSelector": lambda found: str(
        from_label_selector(job_settings(found).namespace_selector)
    ),
    "webhook.certDir": lambda _: CERTIFICATES,
    "fairSharing.preemptionStrategies": lambda found: found.fair_sharing.strategies,
    "waitForPodsReady.blockAdmission": lambda found: found.wait_for_pods_ready.blocks,
    "waitForPodsReady.recoveryTimeout": lambda found: (
        found.wait_for_pods_ready.policy.recovery_timeout
    ),
}
"""The defaults that follow from others."""

HEAD = """# Configuration

This page lists every key of the file that `kueuelib manager --config` reads. The file is a
`Configuration` of `config.kueue.x-k8s.io/v1beta1` or `v1beta2`. [kueuelib
manager](commands.md#kueuelib-manager) explains the important keys.

`kueuelib manager --print-config --config FILE` prints the configuration with all defaults, and
exits. The output is in `v1beta2`, or in `v1beta1` if the file selects Pods with
`integrations.podOptions`.

If the file has refused or unknown keys when the manager starts, it exits with code 2, and one error
lists all of them. Like Kueue, the manager also refuses a key of one version in the other. In
`v1beta2`, the blocks `waitForPodsReady` and `fairSharing` turn their features on, and
`waitForPodsReady.blockAdmission` is false by default.

In a pod, the pod's namespace replaces `kueue-system`. The row of a block shows what happens without
the block. The rows below it show the defaults of keys that you leave out of the block. The table
also shows where the defaults of today's Kueue differ. Kueue always waits for ready pods in
`v1beta2`, serves the visibility API, and limits its requests.

## A changed file

The manager reads the file every 10 seconds, and at SIGHUP. A file that it cannot read, or that is
not valid, changes nothing, and the log says why. Keys that the table marks *at once* take effect
without a restart.

Any other changed key keeps its old value until you restart the manager. So does a block
`waitForPodsReady` that you add or remove. The log names such a key, and the metric
`kueuelib_configuration_restart_needed` is 1 for it. The manager also writes the key to its Lease,
where [`kueuelib doctor`](doctor.md) finds it. The metric `kueuelib_configuration_reloads_total`
counts the files by `result`, which is `taken` or `refused`.

## What the manager publishes

`explain`, `pending`, `report` and `doctor` need the configuration that the manager runs with.
Without `--config`, they look for it in these places, in this order:

1. The annotation `kueuelib.dev/configuration` of the manager's Lease. The leader writes the values
   that differ from the defaults, but only from the blocks that change decisions or jobs. These
   blocks are `waitForPodsReady`, `fairSharing`, `admissionFairSharing`, `preemption` without its
   policy, `borrowing`, `resources`, `manageJobsWithoutQueueName`, `managedJobsNamespaceSelector`,
   `integrations`, `objectRetentionPolicies`, `quotaReleaseStrategy`, `leaderElection` and
   `featureGates`. A manager without leader election writes these values only if it has a
   configuration file.
2. The ConfigMap `kueue-manager-config` of the manager's pods, which may also be pods of the Go
   manager. Blocks that are not on the Lease, such as `metrics`, always come from this ConfigMap.
3. The defaults.

The commands look only in the namespace `kueue-system`. `kueuelib install` lets every authenticated
user `get` the Lease with the default name in the manager's namespace. For the ConfigMap, you need
permission to `get` it. The commands ignore values on the Lease that come from an earlier holder.

If the configuration leads to different decisions than the defaults would, a note names its source.
If no source can be read, a note says why.

## Keys

| Key | Versions | Default | | Changes |
| --- | --- | --- | --- | --- |
"""


def keys(cls: type) -> Iterator[tuple[str, Any]]:
    """The keys below a class, with their defaults."""
    return ((path, _default(field)) for path, field in fields(cls))


def fields(cls: type, path: str = "") -> Iterator[tuple[str, Any]]:
    """The keys below a class, with their fields."""
    hints = typing.get_type_hints(cls)
    for field in attrs.fields(cls):
        here = f"{path}.{camel(field.name)}" if path else camel(field.name)
        inner = _class_of(hints[field.name])
        item = _item_of(hints[field.name])
        if inner is not None:
            yield from fields(inner, here)
        elif item is not None:
            yield from fields(item, f"{here}[]")
        else:
            yield here, field


def _class_of(hint: Any) -> type | None:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (one for one in typing.get_args(hint) if one is not types.NoneType)
    return hint if isinstance(hint, type) and attrs.has(hint) else None


def _item_of(hint: Any) -> type | None:
    """The class of the items of a list, if they have one."""
    return _class_of(typing.get_args(hint)[0]) if typing.get_origin(hint) is tuple else None


def versions_of(path: str) -> str:
    """The versions that have a key."""
    for prefix, only in ONLY_IN.items():
        if path == prefix or path.startswith((f"{prefix}.", f"{prefix}[]")):
            return only.version.rpartition("/")[2]
    return "both"


def _default(field: Any) -> Any:
    return field.default.factory() if isinstance(field.default, attrs.Factory) else field.default


AT_ONCE = frozenset(path for path, field in fields(Configuration) if is_live(field))
"""The keys that take effect at once."""


def shown(value: Any) -> str:
    """A default as it is written."""
    if value is None or value == "" or (isinstance(value, Mapping | tuple) and not value):
        return "none"
    if value in ("on", "off", "required"):
        return str(value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Duration):
        return f"`{format_duration(value)}`"
    return f"`[{', '.join(value)}]`" if isinstance(value, tuple) else f"`{value}`"


def ours(path: str, version: str) -> Any:
    """The default of a key or block in a version."""
    head = {"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration"}
    if path in BLOCKS:
        return "on" if BLOCKS[path](parse_configuration(head, "absent")) else "off"
    if version == "v1beta2" and path in REQUIRED:
        return "required"
    if path not in DERIVED:
        return dict(keys(Configuration))[path]
    content: dict[str, Any] = {"waitForPodsReady": {}, "fairSharing": {}}
    for name, value in REQUIRED.items():
        block, _, key = name.partition(".")
        content[block] = {key: value} if version == "v1beta2" else {"enable": True}
    return DERIVED[path](parse_configuration({**head, **content}, "blocks"))


def of_kueue(path: str, version: str) -> Any:
    """The same in Kueue."""
    found = DEFAULTS[version] if path in DEFAULTS[version] else DEFAULTS["both"]
    value = found[path]
    return tuple(value) if isinstance(value, list) else value


def cell(path: str, default: Callable[[str, str], Any]) -> str:
    """The default of a key, in both versions if they differ."""
    versions = versions_of(path)
    if versions != "both":
        return shown(default(path, versions))
    old, new = (shown(default(path, version)) for version in ("v1beta1", "v1beta2"))
    return old if old == new else f"{old}, in `v1beta2` {new}"


def difference(path: str) -> str:
    """The default in Kueue, if it is another one."""
    if not any(path in DEFAULTS[version] for version in DEFAULTS):
        return ""
    kueue = cell(path, of_kueue)
    return "" if kueue == cell(path, ours) else f"; Kueue: {kueue}"


def page() -> str:
    """The whole page."""
    rows = [(path, versions_of(path), cell(path, ours) + difference(path), "") for path in BLOCKS]
    upstream = yaml.load(FACTS.read_text(encoding="utf-8"), yaml.CSafeLoader)
    known = {path for version in ("both", "v1beta1", "v1beta2") for path in upstream[version]}
    for path, _ in keys(Configuration):
        usual = "honoured" if path in known else "honoured; Kueue does not have it"
        fate = REFUSED[path][0] if path in REFUSED else OTHERWISE.get(path, usual)
        rows.append((path, versions_of(path), cell(path, ours) + difference(path), fate))
    rows += [(path, versions_of(path), "none", "refused") for path in MISSING]
    return HEAD + "".join(
        f"| `{path}` | {versions} | {default} | {fate} | {'at once' if path in AT_ONCE else ''} |\n"
        for path, versions, default, fate in sorted(rows)
    )


if __name__ == "__main__":
    sys.stdout.write(page())
