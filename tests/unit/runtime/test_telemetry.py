from __future__ import annotations

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest

from kueuelib.errors import ConfigError
from kueuelib.runtime.controller import Controller
from kueuelib.runtime.telemetry import Telemetry


class Idle:
    async def reconcile(self, key):
        raise AssertionError(key)


def test_a_registry_of_the_program_gets_all_metrics_and_its_own_are_served_too():
    registry = CollectorRegistry()
    mine = Counter("greetings_total", "Greetings.", registry=registry)
    telemetry = Telemetry(registry)
    Controller("greeter", Idle(), telemetry=telemetry)
    telemetry.sampled("rooms", "Rooms.", (), lambda: {(): 3.0})
    telemetry.rest.retried("get", "503", "server")
    mine.inc()
    served, theirs = telemetry.render().decode(), generate_latest(registry).decode()
    for line in (
        "greetings_total 1.0",
        "rooms 3.0",
        'workqueue_depth{controller="greeter",name="greeter",priority="0"} 0.0',
        'rest_client_request_retries_total{code="503",host="server",verb="get"} 1.0',
    ):
        assert f"\n{line}\n" in served
        assert f"\n{line}\n" in theirs


def test_a_second_telemetry_is_refused_and_leaves_the_first_alone():
    registry = CollectorRegistry(auto_describe=True)
    first = Telemetry(registry=registry)
    before = first.render()
    with pytest.raises(ConfigError, match="hand the same Telemetry to all parts"):
        Telemetry(registry=registry)
    assert first.render() == before


def test_the_registry_of_the_process_is_left_alone():
    telemetry = Telemetry()
    telemetry.rest.retried("get", "503", "server")
    assert b"rest_client" in telemetry.render()
    assert b"rest_client" not in generate_latest(REGISTRY)
