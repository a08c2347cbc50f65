"""Short reasons for tables: `cpu on on-demand: 2 more needed`.

A condition message keeps the long wording that clients of Kueue know. A table, a live view or a
progress line only has the message, perhaps from another manager, so the short form is derived from
the message alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from kueuelib.api.phrases import PREEMPTED_FOR
from kueuelib.api.quantity import Quantity
from kueuelib.errors import InvalidQuantity

POD_SET = re.compile(r"couldn't assign flavors to pod set (?P<name>\S+?): ")
ROOM = re.compile(r"\. (At best|Even without other Workloads), (.*)", re.DOTALL)
"""What a message says about nodes after the causes of all pod sets."""

CAUSES = (
    (
        r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed",
        r"\1 on \2: \3 more needed",
    ),
    (
        (
            r"insufficient quota for (\S+) in flavor (\S+), previously considered podsets requests "
            r"\((\S+)\) \+ current podset request \((\S+)\) > maximum capacity \((\S+)\)"
        ),
        r"\1 on \2: \4 requested, at most \5",
    ),
    (r"untolerated taint \{(\S*) \S* \S* \S*\} in flavor ([^\s,;]*[^\s,;.])", r"\2: taint \1"),
    (r"flavor (\S+) doesn't match node affinity", r"\1: node affinity differs"),
    (r"flavor (\S+) not found", r"\1: no such flavor"),
    (r"resource (\S+) unavailable in ClusterQueue", r"the queue has no quota for \1"),
    (
        r'topology "([^"]+)" allows to fit only (\d+) out of (\d+) (?:pod|slice)\(s\)',
        r"topology \1: room for \2 of \3",
    ),
    (
        r'topology "([^"]+)" doesn\'t allow to fit any of (\d+) (?:pod|slice)\(s\)',
        r"topology \1: room for none of \2",
    ),
    (r'Flavor "([^"]+)" supports only TopologyAwareScheduling', r"\1: only with a topology"),
    (r'Flavor "([^"]+)" does not support TopologyAwareScheduling', r"\1: no topology"),
    (r'Flavor "([^"]+)" does not contain the requested level', r"\1: no such level"),
    (r"Pending the preemption of (\d+) workload\(s\)", r"\1 to be preempted"),
)
"""The causes that a message about flavors can list, and their short forms."""

OTHERS = (
    (
        r"Workload has overlapping preemption targets with another workload, .*",
        "waits for preempted Workloads",
    ),
    (r"Workload no longer fits after processing another workload", "lost to another Workload"),
    (r"Workload is pending evaluation in the scheduling queue", "not evaluated yet"),
    (r"Not evaluated yet: workload (\S+) was the head of ClusterQueue .*", r"behind \1"),
    (
        r"waiting for all admitted workloads to be in PodsReady condition",
        "waits for pods of admitted Workloads",
    ),
    (r"this version has no ([^;]+), requested by [^;]*", r"no \1 in this version"),
    (r"(\S+ scheduling is turned off) by [^;]*, requested by [^;]*", r"\1"),
    (PREEMPTED_FOR.pattern, r"\g<why>"),
)
"""Other messages as a whole, and their short forms."""

SHORTAGES = re.compile("|".join(pattern for pattern, _ in CAUSES[:2]))
"""The causes that name an amount."""
_CAUSE = re.compile("|".join(f"(?:{pattern})" for pattern, _ in CAUSES))
_CAUSES = tuple((re.compile(pattern), form) for pattern, form in CAUSES)
_TREE = re.compile(r'topology "')
"""How the causes about nodes begin, of which `ROOM` says more."""
_OTHERS = tuple((re.compile(pattern, re.DOTALL), form) for pattern, form in OTHERS)


@lru_cache(maxsize=8192)
def shorten(message: str) -> str:
    """The short form of a condition message.

    Args:
        message: the message of `QuotaReserved=False`, as kueuelib or Kueue wrote it.

    Returns:
        The shortages, separated by semicolons; each pod set is named if there are several.
        A message of any other form is returned as it is.
    """
    for pattern, form in _OTHERS:
        if match := pattern.fullmatch(message):
            return match.expand(form)
    before, *room = ROOM.split(message, 1)
    _, *parts = POD_SET.split(before)
    names, texts = parts[::2], parts[1::2]
    shorts = []
    for name, text in zip(names, texts, strict=True):
        label = f"{name}: " if len(names) > 1 else ""
        causes = (cause[0] for cause in _CAUSE.finditer(text))
        shorts += [f"{label}{_short(one)}" for one in causes if not (room and _TREE.match(one))]
    if names and room:
        when, text = room[:2]
        cause = _CAUSE.match(text)
        alone = "" if when == "At best" else "even without others, "
        shorts.append(f"{alone}{_short(cause[0]) if cause else text}")
    return "; ".join(shorts) or message


def _short(cause: str) -> str:
    return next(
        match.expand(form) for pattern, form in _CAUSES if (match := pattern.fullmatch(cause))
    )


@lru_cache(maxsize=8192)
def lacks_in(message: str) -> Mapping[str, Quantity]:
    """The quota that a Workload lacks, by resource, as a condition message says.

    Later shortages include the requests of earlier pod sets, so the largest of a resource counts.
    If several flavors were tried, the smallest shortage counts.

    Args:
        message: the message of `QuotaReserved=False`, as kueuelib or Kueue wrote it.
    """
    lacks: dict[str, Quantity] = {}
    for text in POD_SET.split(message)[2::2]:
        least: dict[str, Quantity] = {}
        for match in SHORTAGES.finditer(text):
            name, amount = _shortage(*match.groups())
            if amount is not None:
                least[name] = min(amount, least.get(name, amount))
        for name, amount in least.items():
            lacks[name] = max(amount, lacks.get(name, amount))
    return MappingProxyType(lacks)


def _shortage(*groups: str | None) -> tuple[str, Quantity | None]:
    """A resource, and how much of it is missing, from the groups of `SHORTAGES`."""
    free, _, more, name, _, before, wanted, most = groups
    try:
        if free and more:
            return free, Quantity.parse(more)
        return name or "", Quantity.parse(before or "") + Quantity.parse(wanted or "") - (
            Quantity.parse(most or "")
        )
    except InvalidQuantity:
        return "", None
