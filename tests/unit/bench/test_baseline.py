"""The parts of the benchmark that compute: shape, recorder, calls, tables, profile."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from baseline import profile, table
from baseline.calls import from_metrics
from baseline.managers import parse
from baseline.playing import finished, released
from baseline.recorder import Recorder, Waits
from baseline.result import Lag, Result, lag_of
from baseline.shape import BASELINE, LARGE_SCALE, workload

from kueuelib.runtime import Telemetry

METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",group="kueue.x-k8s.io",resource="workloads",subresource="status",system_client="",verb="APPLY"} 7
apiserver_request_total{code="409",group="kueue.x-k8s.io",resource="workloads",subresource="status",system_client="",verb="APPLY"} 2
apiserver_request_total{code="201",group="",resource="events",subresource="",system_client="",verb="POST"} 1.2e+03
apiserver_request_total{code="201",group="events.k8s.io",resource="events",subresource="",system_client="",verb="POST"} 5
apiserver_request_total{code="200",group="",resource="pods",subresource="",system_client="",verb="GET"} 9
apiserver_request_total{code="200",group="",resource="events",subresource="",system_client="kube-apiserver",verb="GET"} 9
apiserver_admission_webhook_request_total{code="200",name="vworkload.kb.io",operation="UPDATE",rejected="false",type="validating"} 3
apiserver_admission_webhook_request_total{code="200",name="vworkload.kb.io",operation="CREATE",rejected="false",type="validating"} 4
"""  # noqa: E501 - lines of the server


def state(kind, *conditions):
    obj = workload(next(BASELINE.places()), kind, 1)
    found = [{"type": type_, "status": "True"} for type_ in conditions]
    return {**obj, "status": {"conditions": found}}


def reporting(name, total):
    """A ClusterQueue that says how many CPUs it uses."""
    usage = [{"name": "f", "resources": [{"name": "cpu", "total": total}]}]
    return {"metadata": {"name": name}, "status": {"flavorsUsage": usage}}


def test_upstream_has_fifteen_thousand_workloads():
    assert BASELINE.total == 15_000
    assert BASELINE.quota == 600
    assert BASELINE.scaled(3_000).total == 3_000
    assert [each.count for each in BASELINE.scaled(3_000).classes] == [70, 20, 10]
    assert [each.count for each in BASELINE.scaled(30).classes] == [1, 1, 1]


def test_upstream_has_a_thousand_queues():
    assert (LARGE_SCALE.total, len([*LARGE_SCALE.places()])) == (50_000, 1_000)
    assert LARGE_SCALE.scaled(10_000).total == 10_000


def test_the_lag_is_read_from_metrics():
    telemetry = Telemetry()
    lags = telemetry.histogram("kueuelib_loop_lag_seconds", "", buckets=(0.01, 0.05, 0.1))
    for seconds in (0.001,) * 98 + (0.06, 0.2):
        lags.observe(seconds)
    assert lag_of(telemetry.render().decode()) == Lag(0.1, pytest.approx(0.02))


def test_a_recorder_knows_waits_evictions_and_use():
    recorder = Recorder(BASELINE)
    small, medium, _ = BASELINE.classes
    recorder.see("a", state(medium), 10.0)
    recorder.see("b", state(small), 10.0)
    recorder.see("a", state(medium, "Admitted"), 12.0)
    recorder.see("a", state(medium, "Admitted", "Evicted"), 13.0)
    recorder.see("a", state(medium, "Evicted"), 14.0)
    recorder.see("a", state(medium, "Admitted"), 16.0)
    recorder.see("a", state(medium, "Admitted", "Finished"), 20.0)
    recorder.see("b", state(small, "Admitted"), 20.0)
    recorder.see("b", state(small, "Admitted", "Finished"), 30.0)
    assert recorder.finished == 2
    assert recorder.waits()["medium"] == Waits(1, 6.0, 6.0, 6.0, 6.0, 1, 0.5, 0.0, 1)
    assert recorder.waits()["small"] == Waits(1, 10.0, 10.0, 10.0, 10.0, 0)
    assert recorder.waits()["large"] == Waits(0, 0.0, 0.0, 0.0, 0.0, 0)
    assert recorder.use() == pytest.approx((5 * 2 + 5 * 4 + 1 * 10) / (600 * 20))


def test_an_eviction_loses_what_ran_and_nothing_before_the_admission():
    recorder = Recorder(BASELINE)
    large = BASELINE.classes[2]
    recorder.see("a", state(large, "Admitted"), 12.0)
    recorder.see("a", state(large, "Admitted", "Evicted"), 12.25)
    recorder.see("a", state(large, "Evicted"), 12.5)
    recorder.see("a", state(large, "Evicted"), 13.0)
    recorder.see("b", state(large), 12.0)
    recorder.see("b", state(large, "Evicted"), 13.0)
    waits = recorder.waits()["large"]
    assert (waits.evictions, waits.lost, waits.ended) == (2, 0.25, 0)


def test_a_recorder_knows_the_use_that_cluster_queues_report():
    recorder = Recorder(BASELINE)
    small, *_ = BASELINE.classes
    recorder.see("a", state(small), 10.0)
    recorder.see_queue({"metadata": {"name": "q"}}, 11.0)
    for now, total in ((12.0, "1500m"), (14.0, "2"), (15.0, "0"), (16.0, "3")):
        recorder.see_queue(reporting("q", total), now)
    recorder.see_queue(reporting("other", "3"), 17.0)
    recorder.see("a", state(small, "Admitted", "Finished"), 18.0)
    assert recorder.said_use() == pytest.approx((1.5 * 2 + 2 * 1 + 3 * 2 + 3 * 1) / (600 * 8))


def test_what_cluster_queues_report_after_the_last_end_does_not_count():
    recorder = Recorder(BASELINE)
    small, *_ = BASELINE.classes
    recorder.see("a", state(small), 10.0)
    recorder.see("never ends", state(small), 10.0)
    recorder.see("a", state(small, "Admitted", "Finished"), 20.0)
    for now, total in ((10.0, "10"), (60.0, "7"), (70.0, "0")):
        recorder.see_queue(reporting("q", total), now)
    assert recorder.said_use() == pytest.approx(10 * 10 / (600 * 10))


def test_calls_are_those_of_the_manager():
    calls = {"apply workloads/status": 9, "create events": 1205, "get pods": 9}
    assert from_metrics(METRICS) == calls | {"review vworkload.kb.io": 7}


def test_what_is_applied_names_the_version_it_saw():
    obj = state(BASELINE.classes[0], "Admitted", "Evicted", "Preempted")
    obj["metadata"]["resourceVersion"] = "12"
    obj["status"]["admission"] = {"clusterQueue": "bench-0-0"}
    body = released(obj)
    statuses = {each["type"]: each["status"] for each in body["status"]["conditions"]}
    gone = {"QuotaReserved": "False", "Admitted": "False"}
    assert statuses == {"Evicted": "True", "Preempted": "True", **gone}
    assert "admission" not in body["status"]
    assert body["metadata"]["resourceVersion"] == "12"
    assert [each["type"] for each in finished(obj)["status"]["conditions"]] == ["Finished"]


def test_managers_are_named_by_commands(tmp_path):
    go = parse("go=minimal --kubeconfig {kubeconfig} --level=2")
    assert (go.label, go.command[0], go.own) == ("go", "minimal", False)
    assert parse("/bin/minimal --level=2").label == "minimal"
    assert parse("kueuelib").command == (sys.executable, "-m", "kueuelib")
    (tmp_path / "src/kueuelib").mkdir(parents=True)
    before = parse(f"before=kueuelib@{tmp_path}")
    assert before.own
    assert before.label == "before"
    assert f"PYTHONPATH={tmp_path}/src" in before.command
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    assert f"{tmp_path}/bin/python" in parse(f"kueuelib@{tmp_path}").command
    with pytest.raises(SystemExit, match="neither bin/python nor src/kueuelib"):
        parse("kueuelib@/elsewhere")


def result(label, wall, applies):
    waits = {"small": Waits(10, 1.0, 1.0, 2.0, 3.0, 4)}
    calls = Counter({"apply workloads/status": applies})
    costs = (2.0, 0.5, 100.0, 1.0, 7.0)
    return Result(label, "embedded", 10, 10, wall, *costs, calls, 0.3, 0.5, waits)


def test_medians_are_compared():
    runs = [result("a", 10.0, 20), result("b", 20.0, 30), result("a", 14.0, 20)]
    text = table.comparison([*runs, result("a", 11.0, 20)])
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    assert rows["wall, s"][2:] == ["11.00", "(10.00-14.00)", "20.00", "0.55"]
    assert rows["status writes of Workloads, each"][-1] == "0.67"
    assert "apply workloads/status" in table.calls(runs)


def test_samples_belong_to_the_innermost_part_that_fits():
    loop = "asyncio.events:Handle._run;kueuelib.controllers.admission:AdmissionLoop._cycle"
    samples = {
        f"{loop};kueuelib.scheduler.decide.cycle:decide;attr._make:evolve": 3,
        f"{loop};kueuelib.scheduler.engine:Engine.settle": 2,
        "kueuelib.cli:main;importlib:load": 1,
    }
    assert profile.parts(samples) == {
        "admission loop: the rest of a decision": 3,
        "admission loop: heads, settling": 2,
        profile.REST: 1,
    }
    assert profile.owners(samples) == {"attr": 3, "kueuelib.scheduler": 2, "importlib": 1}
