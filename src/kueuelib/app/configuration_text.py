"""Writes a configuration as a file with every key; reading it gives the same configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.app.configuration import KIND, Configuration
from kueuelib.app.configuration_versions import ONLY_IN, V1BETA1, V1BETA2
from kueuelib.app.decoding import Duration, camel
from kueuelib.scheduler.settings import BOTH_STRATEGIES

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
