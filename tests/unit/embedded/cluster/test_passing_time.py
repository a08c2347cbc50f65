"""Time that is advanced far passes all instants on the way."""

from __future__ import annotations

import math

import pytest

from kueuelib.api.kinds import JOBS, PODS
from kueuelib.api.meta import ObjectKey, parse_time
from kueuelib.embedded.cluster.clock import ManualClock
from kueuelib.testing.background import BackgroundServer

START = 1_900_000_000.0


def job(**spec):
    template = {
        "metadata": {"annotations": {"kueuelib.dev/run-seconds": "10"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    return {
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {**spec, "template": template},
    }


def test_pods_one_after_the_other_end_at_their_own_instants():
    with BackgroundServer(simulate=True, start_time=START) as server:
        made = job(completions=3, parallelism=1)
        server.call(lambda real: real.service.create(JOBS, made))
        server.advance(3600)
        done = server.call(lambda real: real.service.get(JOBS, ObjectKey("default", "j")))
        pods = server.call(lambda real: real.service.list(PODS, "default")).items
        ended = sorted(
            parse_time(each["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"])
            for each in pods
        )
    assert ended == [START + 10, START + 20, START + 30]
    assert parse_time(done["status"]["completionTime"]) == START + 30
    assert done["status"]["succeeded"] == 3


def test_what_is_forgotten_after_its_end_is_gone():
    with BackgroundServer(simulate=True, start_time=START) as server:
        made = job(ttlSecondsAfterFinished=60)
        server.call(lambda real: real.service.create(JOBS, made))
        server.advance(69)
        assert server.call(lambda real: real.service.list(JOBS)).items
        server.advance(3600)
        assert not server.call(lambda real: real.service.list(JOBS)).items


def test_a_year_passes():
    with BackgroundServer(simulate=True, start_time=START) as server:
        server.advance(365 * 24 * 3600)
        assert server.clock is not None
        assert server.clock.now() == START + 365 * 24 * 3600


@pytest.mark.parametrize("seconds", [-5, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("simulate", [True, False])
def test_time_goes_forward_only(seconds, simulate):
    with BackgroundServer(simulate=simulate, start_time=START) as server:
        with pytest.raises(ValueError, match="a clock cannot move by"):
            server.advance(seconds)
        server.advance(1)
        assert server.clock is not None
        assert server.clock.now() == START + 1


def test_a_clock_starts_at_an_instant():
    with pytest.raises(ValueError, match="a clock cannot start at nan"):
        ManualClock(math.nan)
