"""Drives the engines of server-side apply without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kueuelib.api.meta import Obj
from kueuelib.embedded.patching.apply import Steps

R = TypeVar("R")


def run(steps: Steps[R], convert: Callable[[Obj, str], Obj | None] | None = None) -> R:
    """Drive steps whose conversions, if any, are plain calls."""
    answer: Obj | None = None
    try:
        while True:
            asked = steps.send(answer)
            if convert is None:
                raise ValueError(f"no way to convert to {asked.api_version}")
            answer = convert(asked.obj, asked.api_version)
    except StopIteration as finished:
        outcome: R = finished.value
        return outcome
