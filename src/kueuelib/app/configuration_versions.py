"""The versions of the configuration file: what `v1beta2` says, in the words of `v1beta1`.

In `v1beta2` a block turns its feature on by being there, and some keys are required or gone.
"""

from __future__ import annotations

from typing import Any, Final

from kueuelib.app.fair_sharing import strategy_lists
from kueuelib.errors import ConfigError

V1BETA1: Final = "config.kueue.x-k8s.io/v1beta1"
V1BETA2: Final = "config.kueue.x-k8s.io/v1beta2"


def as_v1beta1(content: dict[str, Any], source: str) -> dict[str, Any]:
    """The content of a `v1beta2` file as a `v1beta1` file says it; the given one is not changed.

    Args:
        content: without `apiVersion` and `kind`. Wrong types are left to the decoder.
        source: names the file in errors.

    Raises:
        ConfigError: a key that `v1beta2` does not have, or one that it requires is missing.
    """
    if "queueVisibility" in content:
        raise ConfigError(
            source, f"queueVisibility is not a key of {V1BETA2}", "remove it (see docs/missing.md)"
        )
    found = dict(content)
    waiting = _turned_on(found, "waitForPodsReady", source)
    if waiting is not None:
        _require(waiting, "waitForPodsReady.timeout", "for example 5m", source)
        waiting.setdefault("blockAdmission", False)
    sharing = _turned_on(found, "fairSharing", source)
    if sharing is not None:
        wanted = f"one of {strategy_lists()}"
        _require(sharing, "fairSharing.preemptionStrategies", wanted, source)
    return found


def _turned_on(content: dict[str, Any], name: str, source: str) -> dict[str, Any] | None:
    """A copy of a block with `enable: true`, put into the content; None if there is none."""
    block = content.get(name)
    if not isinstance(block, dict):
        return None
    if "enable" in block:
        raise ConfigError(
            source,
            f"{name}.enable is not a key of {V1BETA2}",
            f"remove the key to turn {name} on, and the whole block to turn it off",
        )
    content[name] = copy = {**block, "enable": True}
    return copy


def _require(block: dict[str, Any], path: str, wanted: str, source: str) -> None:
    if not block.get(path.rpartition(".")[2]):
        raise ConfigError(source, f"{path} is missing", f"write {wanted}")
