"""Finds labels and annotations for a topology that have no effect, because they are misspelled or
are not annotations of pods or of a pod template (KEP-2724).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from kueuelib.api import names
from kueuelib.api.kinds import KUEUE
from kueuelib.api.missing_features import KEYS, RECORDS
from kueuelib.api.struct import frozen

DOMAIN: Final = f"{KUEUE}/"
KNOWN_KEYS: Final = frozenset(
    value for value in vars(names).values() if isinstance(value, str) and value.startswith(DOMAIN)
)
"""The labels and annotations of Kueue's domain that this version knows."""
UNKNOWN: Final = "this version does not know it"
_NAMES: Final = {key.removeprefix(DOMAIN): key for key in names.TOPOLOGY_KEYS}
_SIGNS: Final = ("podset", "pod-set", "topolog")
_LIKE: Final = 0.75
"""The least similarity of a misspelled key and the key that it means, from 0 to 1."""


@frozen
class IgnoredKey:
    """A label or annotation without effect.

    Attributes:
        field: `labels` or `annotations`.
        key: its key.
        why: why it has no effect.
    """

    field: str
    key: str
    why: str

    def text(self, path: str) -> str:
        """One sentence for people.

        Args:
            path: the field path of the metadata.
        """
        return f"{path}.{self.field}[{self.key}] has no effect: {self.why}"


def ignored_topology_keys(metadata: Mapping[str, Any], *, of_pods: bool) -> Iterator[IgnoredKey]:
    """The labels and annotations of an object that are meant for a topology but have no effect.

    Args:
        metadata: its raw metadata.
        of_pods: whether it is a pod or a pod template, whose annotations have an effect.
    """
    place = "the annotations" if of_pods else "the annotations of the pod template"
    for field in ("labels", "annotations"):
        has_effect = of_pods and field == "annotations"
        for key in sorted(metadata.get(field) or ()):
            if key in names.TOPOLOGY_KEYS:
                if not has_effect:
                    yield IgnoredKey(field, key, f"it belongs in {place}")
            elif meant := _meant(key):
                where = "" if has_effect else f", in {place}"
                yield IgnoredKey(field, key, f"{UNKNOWN}; did you mean {meant}{where}?")


def _meant(key: str) -> str:
    """The annotation that a misspelled key means; empty if it means none of them."""
    domain, _, name = key.rpartition("/")
    if not any(sign in name for sign in _SIGNS) or not ("kueue" in domain or not domain):
        return ""
    if key in KNOWN_KEYS or key in KEYS or key in RECORDS:
        return ""
    return next((_NAMES[one] for one in get_close_matches(name, _NAMES, 1, _LIKE)), "")
