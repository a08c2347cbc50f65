"""A sample of the hostile requests; `$HOSTILE_REQUESTS` says how many, 10,000 for all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.conformance.hostile.attack import TARGETS, attacked

SAMPLE = int(os.environ.get("HOSTILE_REQUESTS", "100"))
SEED = 7


@pytest.mark.parametrize("target", sorted(TARGETS))
async def test_hostile_requests_are_refused_and_nobody_else_notices(target):
    found = await attacked(target, SEED, SAMPLE)
    assert (found.bad, found.tracebacks) == ([], 0), found
    assert sum(found.phases[0].answers.values()) == SAMPLE
    assert all(phase.honest for phase in found.phases)
