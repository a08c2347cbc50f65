"""Short reasons for tables: `cpu on on-demand: 2 more needed`.

A condition message keeps the long wording that clients of Kueue know. A table, a live view or a
progress line only has the message, perhaps from another manager, so the short form is derived from
the message alone.
"""

from __future__ import annotations

import re
from functools import lru_cache

POD_SET = re.compile(r"couldn't assign flavors to pod set (?P<name>\S+?): ")

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
    (r"resource (\S+) unavailable in ClusterQueue", r"\1: not in the ClusterQueue"),
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
)
"""Other messages as a whole, and their short forms."""

_CAUSE = re.compile("|".join(f"(?:{pattern})" for pattern, _ in CAUSES))
_CAUSES = tuple((re.compile(pattern), form) for pattern, form in CAUSES)
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
    _, *parts = POD_SET.split(message)
    names, texts = parts[::2], parts[1::2]
    shorts = []
    for name, text in zip(names, texts, strict=True):
        label = f"{name}: " if len(names) > 1 else ""
        shorts += [f"{label}{_short(cause[0])}" for cause in _CAUSE.finditer(text)]
    return "; ".join(shorts) or message


def _short(cause: str) -> str:
    return next(
        match.expand(form) for pattern, form in _CAUSES if (match := pattern.fullmatch(cause))
    )
