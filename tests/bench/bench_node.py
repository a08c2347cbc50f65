"""Starts of pods by `kueuelib node`: one after the other, fifty at a time, and its memory."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from statistics import median

from figures import show

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from local_node import LocalNode, local_node
from unprivileged import without_sandbox

ONE_BY_ONE, AT_A_TIME = 10, 50


def seconds_to_start(node: LocalNode, name: str) -> float:
    """From the request that creates a pod to the first instruction of its container."""
    begun = time.time()
    node.run(name, "date +%s.%N")
    node.reaches(name, "Succeeded")
    return float(node.text(name)) - begun


def memory(node: LocalNode) -> float:
    """The resident memory of the node, in MB."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            words = status.with_name("cmdline").read_bytes().split(b"\0")
            text = status.read_text()
        except OSError:
            continue
        if b"node" in words and str(node.folder).encode() in words:
            found = re.search(r"VmRSS:\s+(\d+)", text)
            assert found is not None
            return int(found[1]) / 1024
    raise AssertionError("the node does not run")


def test_starts_of_pods() -> None:
    with local_node() as node:
        empty = memory(node)
        one = sorted(seconds_to_start(node, f"one-{index}") for index in range(ONE_BY_ONE))
        begun = time.monotonic()
        for index in range(AT_A_TIME):
            node.run(f"many-{index}", "sleep 600")
        for index in range(AT_A_TIME):
            node.reaches(f"many-{index}", "Running")
        all_at_once = time.monotonic() - begun
        full = memory(node)
    show(
        f"pods of a local node, {without_sandbox() or 'in the sandbox'}",
        [
            (
                "a pod, from its creation to its first instruction",
                f"median {median(one):.2f} s, {one[0]:.2f} to {one[-1]:.2f} s",
            ),
            (f"{AT_A_TIME} pods, until all are seen running", f"{all_at_once:.1f} s"),
            ("memory of the node", f"{empty:.0f} MB, {full:.0f} MB with {AT_A_TIME} pods"),
        ],
    )
