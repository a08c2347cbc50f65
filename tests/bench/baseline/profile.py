"""Samples as a table: which part of the manager they belong to, and whose code it was."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

PARTS = (
    ("admission loop: nominate heads", ("kueuelib.scheduler.decide.nomination",)),
    ("admission loop: the rest of a decision", ("kueuelib.scheduler.decide.cycle",)),
    ("admission loop: heads, settling", ("kueuelib.controllers.admission",)),
    ("webhooks", ("kueuelib.runtime.webhook.", "aiohttp.web_protocol", "aiohttp.web_server")),
    ("engine takes changes in", ("kueuelib.controllers.feed",)),
    ("informers: decode, compare, store", ("kueuelib.runtime.informer",)),
    ("Events", ("kueuelib.runtime.events",)),
    ("writes: admissions", ("kueuelib.controllers.applier:Applier._admit",)),
    ("writes: why it waits", ("kueuelib.controllers.applier:Applier._wait",)),
    ("writes: status of queues", ("kueuelib.controllers.queues",)),
    ("other reconciles", ("kueuelib.runtime.controller",)),
    (
        "connections: bytes in and out",
        ("asyncio.sslproto", "kueuelib.runtime.tls_layer", "kueuelib.runtime.http_connection"),
    ),
    ("other tasks and callbacks", ("asyncio.events:Handle._run",)),
    ("the event loop itself", ("asyncio.base_events:",)),
)
"""Parts of the manager, and what a frame of a stack begins with; the first that fits counts."""
REST = "start and end"


def parts(samples: Mapping[str, int]) -> Counter[str]:
    """Samples by part of the manager."""
    by_part: Counter[str] = Counter()
    for stack, count in samples.items():
        frames = stack.split(";")
        for name, prefixes in PARTS:
            if any(frame.startswith(prefixes) for frame in frames):
                by_part[name] += count
                break
        else:
            by_part[REST] += count
    return by_part


def owners(samples: Mapping[str, int]) -> Counter[str]:
    """Samples by the package of the innermost frame; kueuelib's by its own packages."""
    by_package: Counter[str] = Counter()
    for stack, count in samples.items():
        names = stack.rpartition(";")[2].partition(":")[0].split(".")
        by_package[".".join(names[:2] if names[0] == "kueuelib" else names[:1])] += count
    return by_package


def functions(samples: Mapping[str, int]) -> Counter[str]:
    """Samples by the innermost function."""
    by_function: Counter[str] = Counter()
    for stack, count in samples.items():
        by_function[stack.rpartition(";")[2]] += count
    return by_function


def report(path: Path, most: int = 15) -> str:
    """The tables.

    Args:
        path: what `sampler.py` wrote.
        most: rows of the table of functions.
    """
    samples = json.loads(path.read_text())
    total = sum(samples.values()) or 1
    lines = [f"{total:,} samples of the manager's processor time"]
    for title, counts in (
        ("part", parts(samples)),
        ("code of", owners(samples)),
        ("function", functions(samples)),
    ):
        lines += ["", title]
        lines += [f"  {count / total:6.1%}  {name}" for name, count in counts.most_common(most)]
    return "\n".join(lines)
