"""The versions of the configuration file: translates `v1beta2` to `v1beta1`.

In `v1beta2`, the presence of a block turns its feature on, and some keys are required or gone. A
few keys exist only there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from kueuelib.app.fair_sharing import strategy_lists
from kueuelib.errors import ConfigError

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


def as_v1beta1(content: dict[str, Any], version: str, source: str) -> dict[str, Any]:
    """The content of a file in the form of `v1beta1`; the argument is not changed.

    Args:
        content: without `apiVersion` and `kind`. Wrong types are left to the decoder.
        version: of the file.
        source: names the file in errors.

    Raises:
        ConfigError: a key that the version does not have, or one that it requires is missing.
    """
    for path, only in ONLY_IN.items():
        converted = next(_places(content, path.split(".")), None)
        if converted is not None and only.version != version:
            raise ConfigError(source, f"{converted} is not a key of {version}", only.fix)
    return _turned_on(content, source) if version == V1BETA2 else content


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


def _turned_on(content: dict[str, Any], source: str) -> dict[str, Any]:
    """A `v1beta2` file with `enable: true` in the blocks that turn something on."""
    filled = dict(content)
    waiting = _enabled(filled, "waitForPodsReady")
    if waiting is not None:
        _require(waiting, "waitForPodsReady.timeout", "for example 5m", source)
        waiting.setdefault("blockAdmission", False)
    sharing = _enabled(filled, "fairSharing")
    if sharing is not None:
        wanted = f"one of {strategy_lists()}"
        _require(sharing, "fairSharing.preemptionStrategies", wanted, source)
    return filled


def _enabled(content: dict[str, Any], name: str) -> dict[str, Any] | None:
    """A copy of a block with `enable: true`, put into the content; None if there is none."""
    block = content.get(name)
    if not isinstance(block, dict):
        return None
    content[name] = copy = {**block, "enable": True}
    return copy


def _require(block: dict[str, Any], path: str, wanted: str, source: str) -> None:
    if not block.get(path.rpartition(".")[2]):
        raise ConfigError(source, f"{path} is missing", f"write {wanted}")
