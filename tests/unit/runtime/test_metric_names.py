"""The names of controller-runtime and client-go, which dashboards expect, and ours beside them."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from kueuelib.errors import ConfigError
from kueuelib.machinery.election import ElectionOptions
from kueuelib.runtime import Client, Elector, ObjectKey, Operator, PatchType, Telemetry, kinds
from kueuelib.runtime.certificates import CertificateFiles
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.operator.program import ServeOptions, assemble
from kueuelib.runtime.telemetry import RestMetrics
from kueuelib.runtime.transport import Throttle
from kueuelib.runtime.webhook.server import WebhookServer
from kueuelib.testing import eventually, free_port

NAMES = {
    "controller_runtime_active_workers",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_reconcile_panics_total",
    "controller_runtime_reconcile_time_seconds_bucket",
    "controller_runtime_reconcile_timeouts_total",
    "controller_runtime_reconcile_total",
    "controller_runtime_terminal_reconcile_errors_total",
    "kueuelib_informer_events_total",
    "kueuelib_informer_objects",
    "kueuelib_informer_requests_total",
    "kueuelib_loop_lag_seconds_bucket",
    "kueuelib_watch_silence_seconds",
    "rest_client_rate_limiter_duration_seconds_bucket",
    "rest_client_request_duration_seconds_bucket",
    "rest_client_request_size_bytes_bucket",
    "rest_client_requests_total",
    "rest_client_response_size_bytes_bucket",
    "workqueue_adds_total",
    "workqueue_depth",
    "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds_bucket",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_work_duration_seconds_bucket",
}


def value(telemetry: Telemetry, series: str) -> float:
    lines = telemetry.render().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(series))


async def test_an_operator_reports_under_the_names_that_dashboards_expect(
    kube_client: Client,
) -> None:
    """No sample has an exemplar, also for a scraper that would read them."""
    telemetry = Telemetry()
    kube_client.transport.observer = RestMetrics(telemetry)
    counted = Client(kube_client.transport, throttle=Throttle(1000, 1))
    app = Operator("looks")

    @app.reconciles(kinds.NAMESPACES)
    async def look(obj: Any, context: Any) -> None:
        pass

    manager, address = Manager(), f"127.0.0.1:{free_port()}"
    assemble(app, manager, counted, ServeOptions(metrics_address=address), telemetry)
    program = asyncio.create_task(manager.run())
    await eventually(lambda: manager.ready)
    async with httpx.AsyncClient() as http:

        async def found() -> bool:
            text = (await http.get(f"http://{address}/metrics")).text
            names = {re.split(r"[{ ]", line)[0] for line in text.splitlines()}
            return names >= NAMES

        await eventually(found)
        modern = {"Accept": "application/openmetrics-text; version=1.0.0"}
        answer = await http.get(f"http://{address}/metrics", headers=modern)
        assert answer.headers["content-type"].startswith("text/plain")
        assert " # {" not in answer.text
    samples = [one for family in telemetry.registry.collect() for one in family.samples]
    assert any(one.name.endswith("_bucket") and one.value for one in samples)
    assert [one.name for one in samples if one.exemplar is not None] == []
    causes = [
        line
        for line in telemetry.render().decode().splitlines()
        if line.startswith("kueuelib_informer_requests_total{")
    ]
    assert any('cause="start"' in line for line in causes)
    manager.stop()
    await program


async def test_a_renewal_that_has_to_read_the_lease_is_counted(kube_client: Client) -> None:
    telemetry, lease = Telemetry(), ObjectKey("default", "lead")
    options = ElectionOptions(
        lease=lease, identity="me", lease_duration=20, renew_deadline=15, retry_period=0.05
    )
    led = asyncio.Event()
    task = asyncio.create_task(Elector(kube_client, options, telemetry=telemetry).run(led.set))
    await led.wait()
    series = 'leader_election_slowpath_total{name="lead"}'
    assert value(telemetry, series) == 0

    async def counted() -> bool:
        seen = {"metadata": {"annotations": {"seen": str(time.monotonic())}}}
        await kube_client.patch(kinds.LEASES, lease, seen, PatchType.MERGE)
        return value(telemetry, series) > 0

    await eventually(counted)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_certificates_from_files_are_counted(tmp_path: Path) -> None:
    telemetry = Telemetry()
    with pytest.raises(ConfigError):
        await CertificateFiles([], tmp_path, telemetry=telemetry).run(lambda: None)
    assert value(telemetry, "certwatcher_read_certificate_total") == 1
    assert value(telemetry, "certwatcher_read_certificate_errors_total") == 1


async def test_a_conversion_that_crashes_is_counted() -> None:
    telemetry = Telemetry()
    server = WebhookServer("127.0.0.1", 0, None, telemetry=telemetry)

    def crash(obj: Any, version: str) -> Any:
        raise RuntimeError("oh no")

    server.convert("/convert", crash)
    ready = asyncio.Event()
    task = asyncio.create_task(server.run(ready.set))
    await ready.wait()
    obj = {"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "a"}}
    request = {"uid": "1", "desiredAPIVersion": "example.com/v2", "objects": [obj]}
    review = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": request,
    }
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"http://127.0.0.1:{server.port}/convert", json=review)
    assert "the webhook failed" in answer.text
    assert "oh no" not in answer.text
    assert value(telemetry, "controller_runtime_conversion_webhook_panics_total") == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
