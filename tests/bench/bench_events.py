"""Events from the wire to a handler: kueuelib beside kopf and `kubernetes_asyncio.watch`."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from bench_informer import streaming
from figures import show

READER = Path(__file__).parent / "event_reader.py"
EVENTS = int(os.environ.get("EVENTS", "20000"))
RUNS = int(os.environ.get("EVENTS_RUNS", "3"))
NEEDED = {"kueuelib": "kueuelib", "kopf": "kopf", "watch": "kubernetes_asyncio"}


def test_events_to_a_handler_beside_others() -> None:
    ways = [how for how, module in NEEDED.items() if importlib.util.find_spec(module)]
    times: dict[str, list[float]] = {how: [] for how in ways}
    with streaming("pods", 0, EVENTS) as url:
        for _ in range(RUNS):
            for how in ways:
                args = [sys.executable, str(READER), how, url, str(EVENTS)]
                answer = subprocess.run(
                    args, check=True, capture_output=True, text=True, timeout=300
                )
                times[how].append(float(answer.stdout.split()[0]))
    best = {how: min(seconds) for how, seconds in times.items()}
    rows = []
    for how, seconds in best.items():
        ratio = seconds / best["kueuelib"]
        rate = EVENTS / seconds
        rows.append(
            (how, f"{rate:>7,.0f} per processor second, {ratio:.1f} times the time of kueuelib")
        )
    show(f"events to a handler: {EVENTS:,} about 1,000 Pods, best of {RUNS}, by turns", rows)
    assert times["kueuelib"]
