"""A configuration as a file: its versions, and one with every key that reads as the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.app.configuration import KIND, Configuration
from kueuelib.app.decision_blocks import strategy_lists
from kueuelib.app.decoding import ConfigurationRefusal, Duration, camel
from kueuelib.errors import ConfigError
from kueuelib.scheduler.settings import BOTH_STRATEGIES

# ---- the versions of the configuration file: translates `v1beta2` to `v1beta1` -------------------
# In `v1beta2`, the presence of a block turns its feature on, and some keys are required or gone. A
# few keys exist only there.

V1BETA1: Final = "config.kueue.x-k8s.io/v1beta1"
V1BETA2: Final = "config.kueue.x-k8s.io/v1beta2"

_VERSION: Final = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?", re.ASCII)
_STAGES: Final = ("alpha", "beta", None)
_NEWEST: Final = (1, _STAGES.index("beta"), 2)
"""`V1BETA2`, for comparisons."""


@attrs.frozen
class OnlyIn:
    """A key that the other version does not have.

    Attributes:
        version: the version that has it.
        fix: the fix in the other version.
    """

    version: str
    fix: str = ""


_NEWER: Final = OnlyIn(V1BETA2, f"set apiVersion: {V1BETA2}")
_BY_BLOCK: Final = "remove the key to turn {} on, and the whole block to turn it off"
_SELECTS_PODS: Final = OnlyIn(
    V1BETA1, f"write managedJobsNamespaceSelector, or set apiVersion: {V1BETA1}"
)
ONLY_IN: Final[Mapping[str, OnlyIn]] = {
    "waitForPodsReady.enable": OnlyIn(V1BETA1, _BY_BLOCK.format("waitForPodsReady")),
    "fairSharing.enable": OnlyIn(V1BETA1, _BY_BLOCK.format("fairSharing")),
    "queueVisibility": OnlyIn(V1BETA1, "remove it (see docs/missing.md)"),
    "integrations.podOptions.namespaceSelector": _SELECTS_PODS,
    "integrations.podOptions.podSelector": _SELECTS_PODS,
    "multiKueue.clusterProfile": _NEWER,
    "multiKueue.incrementalDispatcherConfig": _NEWER,
    "visibilityServer": _NEWER,
    "resources.quotaCheckStrategy": _NEWER,
    "metrics.customLabels[].sourceKind": _NEWER,
    "metrics.customLabels[].trackedValues": _NEWER,
}
"""The keys that only one version has, including everything below them."""

REQUIRED: Final[Mapping[str, str]] = {
    "waitForPodsReady.timeout": "for example 5m",
    "fairSharing.preemptionStrategies": f"one of {strategy_lists()}",
}
"""The keys that a block of `v1beta2` must have, and what to write."""


def unknown_version(version: Any, source: str) -> ConfigError:
    """What to say about an `apiVersion` that is not read.

    Args:
        version: what the file says, of any type.
        source: names the file.
    """
    group, _, name = str(version).rpartition("/")
    parts = _VERSION.fullmatch(name)
    if group == V1BETA2.rpartition("/")[0] and parts is not None:
        major, stage, minor = parts.groups()
        if (int(major), _STAGES.index(stage), int(minor or 0)) > _NEWEST:
            return ConfigError(
                source,
                f"apiVersion {version} is newer than this version of kueuelib understands",
                f"install a newer kueuelib, or write the file for {V1BETA2}",
            )
    return ConfigError(
        source, f"apiVersion is not {V1BETA1} or {V1BETA2}", f"set apiVersion: {V1BETA2}"
    )


def check_version(content: Mapping[str, Any], version: str) -> Iterator[ConfigurationRefusal]:
    """Refuses keys that the version does not have, and the lack of those that it requires.

    Args:
        content: without `apiVersion` and `kind`. Wrong types are left to the decoder.
        version: of the file.
    """
    for path, only in ONLY_IN.items():
        if only.version != version:
            for place in _places(content, path.split(".")):
                yield ConfigurationRefusal(f"{place} is not a key of {version}", only.fix)
    for path, wanted in REQUIRED.items() if version == V1BETA2 else ():
        name, _, key = path.partition(".")
        block = content.get(name)
        if isinstance(block, Mapping) and not block.get(key):
            yield ConfigurationRefusal(f"{path} is missing", f"write {wanted}")


def as_v1beta1(content: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The content of a file in the form of `v1beta1`.

    Args:
        content: without `apiVersion` and `kind`; not changed.
        version: of the file.
    """
    filled = dict(content)
    for name in ("waitForPodsReady", "fairSharing") if version == V1BETA2 else ():
        if isinstance(filled.get(name), Mapping):
            filled[name] = {**filled[name], "enable": True}
            if name == "waitForPodsReady":
                filled[name].setdefault("blockAdmission", False)
    return filled


def _places(content: Any, path: list[str], at: str = "") -> Iterator[str]:
    """The places of a path in a file, with the indices of lists."""
    name, *rest = path
    key = name.removesuffix("[]")
    here = f"{at}.{key}" if at else key
    if not isinstance(content, dict) or key not in content:
        return
    if not rest:
        yield here
    elif key == name:
        yield from _places(content[key], rest, here)
    elif isinstance(content[key], list):
        for index, each in enumerate(content[key]):
            yield from _places(each, rest, f"{here}[{index}]")


# --------------------------------------------------------------------------------------------------

_UNITS: Final = (("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000))


_BLOCKS: Final = ("waitForPodsReady", "fairSharing")
"""Blocks whose presence turns their feature on."""


def as_content(configuration: Configuration) -> dict[str, Any]:
    """The content of a file, with defaults filled in; features that are off are left out.

    It is `v1beta2`, unless only `v1beta1` can express it.
    """
    content, options = every_key(configuration), configuration.integrations.pod_options
    selects_pods = options.namespace_selector is not None or options.pod_selector
    version = V1BETA1 if selects_pods else V1BETA2
    for name in _BLOCKS:
        if name in content:
            content[name]["enable"] = True
    for path, only in ONLY_IN.items():
        if only.version != version:
            _drop(content, path.split("."))
    return {"apiVersion": version, "kind": KIND, **content}


def every_key(configuration: Configuration) -> dict[str, Any]:
    """The whole configuration, with the keys of all versions; features that are off are left out.

    A block `waitForPodsReady` or `fairSharing` is present if the feature is on.
    """
    content: dict[str, Any] = _plain(configuration)
    content.pop("queueVisibility", None)  # it has no effect
    for name in _BLOCKS:
        block = content.get(name)
        if block is not None and not block.pop("enable"):
            del content[name]
    if "waitForPodsReady" in content:
        waiting = configuration.wait_for_pods_ready
        content["waitForPodsReady"]["blockAdmission"] = waiting is not None and waiting.blocks
    if "fairSharing" in content and not content["fairSharing"]["preemptionStrategies"]:
        content["fairSharing"]["preemptionStrategies"] = list(BOTH_STRATEGIES)
    return content


def _drop(content: Any, path: list[str]) -> None:
    name, *rest = path
    key = name.removesuffix("[]")
    if key not in content:
        return
    if not rest:
        del content[key]
        return
    for each in content[key] if name.endswith("[]") else (content[key],):
        _drop(each, rest)


def format_duration(seconds: float) -> str:
    """A Go duration, for example `1m30s`; exact to the nanosecond."""
    left = round(seconds * 1e9)
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    if left:
        parts.append(f"{left}ns")
    return "".join(parts) or "0s"


def _plain(value: Any) -> Any:
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, Quantity):
        return str(value)
    if attrs.has(type(value)):
        fields = {
            camel(field.name): _plain(getattr(value, field.name))
            for field in attrs.fields(type(value))
        }
        return {key: one for key, one in fields.items() if one is not None}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
