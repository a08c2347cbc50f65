"""Readers of traces: what a line means, and what is said about a bad one."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from kueuelib.errors import ConfigError
from kueuelib.simulator.parsing import Faults
from kueuelib.simulator.readers.formats import FORMATS, format_of, reader
from kueuelib.simulator.readers.source import TraceSource
from kueuelib.simulator.trace import CPU, GPU, MEMORY, TraceJob

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def read(path: Path, *, strict: bool = False) -> tuple[list[TraceJob], Faults, TraceSource]:
    faults, source = Faults(strict=strict), TraceSource()
    return list(FORMATS[format_of(path)](path, faults, source)), faults, source


def requests(job: TraceJob) -> tuple[int, dict[str, str]]:
    (shape,) = job.pod_sets
    return shape.count, dict(shape.requests)


SWF = """\
; MaxProcs: 64
; Note: -1 means unknown
1 0 5 100 4 -1 -1 8 200 -1 1 3 2 -1 7 -1 -1 -1
2 10 0 50 4 -1 -1 -1 -1 -1 5 3 2 -1 -1 -1 1 30

3 20 0 -1 4 -1 -1 4 -1 -1 0 1 1 -1 1 -1 -1 -1
4 30 0 10 -1 -1 -1 -1 -1 -1 1 1 1 -1 1 -1 -1 -1
5 40 0 ten 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1 -1
6 50 0 10 1
7 60 0 0 1 -1 -1 2 -1 -1 0 1 1 -1 1 -1 -1 -1
8 70 0 1 1 -1 -1 0.5 -1 -1 0 1 1 -1 1 -1 -1 -1
"""


def test_a_line_of_the_standard_workload_format(write: Write) -> None:
    found, _, source = read(write("a.swf", SWF))
    first, second, third = found
    assert (first.name, first.arrival, first.run_seconds) == ("1", 0, 100)
    assert requests(first) == (8, {CPU: "1"})  # requested, not allocated
    assert (first.queue, first.user, first.group) == ("7", "3", "2")
    assert (first.requested_seconds, first.after, first.end) == (200, "", "completed")
    assert requests(second) == (4, {CPU: "1"})  # requested is unknown
    assert (second.after, second.think_seconds, second.end) == ("1", 30, "killed")
    assert (third.name, third.run_seconds, third.end) == ("7", 0, "failed")
    assert source.machines == {CPU: 64}


def test_lines_that_are_left_out_are_counted_with_file_line_field_and_reason(write: Write) -> None:
    path = write("a.swf", SWF)
    _, faults, _ = read(path)
    assert faults.dropped == {"run time unknown": 1, "number of processors unknown": 1}
    assert faults.bad == 3
    assert [str(line) for line in faults.shown] == [
        f"{path}:8: run time: 'ten' is not a number",
        f"{path}:9: 5 fields instead of 18",
        f"{path}:11: requested processors: '0.5' is not a whole number",
    ]
    with pytest.raises(ConfigError, match=r"a\.swf:8: run time: 'ten' is not a number; correct"):
        read(path, strict=True)


def test_an_arrival_that_no_calendar_has_is_a_bad_line(write: Write) -> None:
    for path in (
        write("a.swf", SWF.replace("2 10 0 50", "2 1e12 0 50")),
        write("a.yaml", YAML.replace('"40"', '"1e12"')),
    ):
        _, faults, _ = read(path)
        assert "'1e12' is past the year 9998; are these milliseconds?" in str(faults.shown[0])


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.swf", SWF + SWF.splitlines()[2] + "\n", 12),
        ("a.csv", "name,arrival,run_seconds,cpu\na,1,1,1\na,100,1,1\n", 3),
    ],
)
def test_a_second_job_of_one_name_is_a_bad_line(
    write: Write, name: str, text: str, line: int
) -> None:
    path = write(name, text)
    found, faults, _ = read(path)
    assert len({job.name for job in found}) == len(found)
    assert str(faults.shown[-1]).startswith(f"{path}:{line}: another job is called default/")
    with pytest.raises(ConfigError, match="--strict"):
        read(path, strict=True)


def test_only_the_first_bad_lines_are_kept(write: Write) -> None:
    _, faults, _ = read(write("a.swf", "1 2\n" * 1000))
    assert (faults.bad, len(faults.shown)) == (1000, 10)


def test_a_trace_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "a.swf.gz"
    path.write_bytes(gzip.compress(SWF.encode()))
    assert len(read(path)[0]) == 3
    path.write_bytes(gzip.compress(SWF.encode())[:-20])
    with pytest.raises(ConfigError, match=r"a\.swf\.gz"):
        read(path)


CSV = """\
name,arrival,run_seconds,queue,priority,pods,min_pods,cpu,memory,gpu,request.example.com/nic,end
a,2024-05-01T00:00:10Z,60,team,100,4,2,500m,1Gi,1,2,failed
,20.5,0,,,,,1,,,,
"""


def test_a_line_of_csv(write: Write) -> None:
    first, second = read(write("a.csv", CSV))[0]
    assert (first.arrival, first.run_seconds, first.priority) == (1714521610, 60, 100)
    amounts = {CPU: "500m", MEMORY: "1Gi", GPU: "1", "example.com/nic": "2"}
    assert requests(first) == (4, amounts)
    assert (first.pod_sets[0].min_count, first.queue, first.end) == (2, "team", "failed")
    assert (second.name, second.arrival, second.queue) == ("3", 20.5, "")
    assert requests(second) == (1, {CPU: "1"})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1,2", "2 columns instead of 4"),
        ("x,1,1,1", "arrival: 'x' is neither a number nor a date and time"),
        ("nan,1,1,1", "arrival: 'nan' is neither a number nor a date and time"),
        ("-1,1,1,1", "arrival: '-1' is negative"),
        ("1e12,1,1,1", "arrival: '1e12' is past the year 9998; are these milliseconds?"),
        ("1e300,1,1,1", "arrival: '1e300' is past the year 9998"),
        ("1,1,1,1e300", "pods: '1e300' is too large"),
        ("1,-1,1,1", "run_seconds: '-1' is negative"),
        ("1,inf,1,1", "run_seconds: 'inf' is not a finite number"),
        ("1,1,lots,1", "cpu: 'lots' is not a Kubernetes quantity"),
        ("1,1,-1,1", "cpu: '-1' is negative"),
        ("1,1,0,1", "asks for nothing: give cpu, memory, gpu or request.*"),
        ("1,1,1,0", "pods: '0' is less than 1"),
        ("1,1,1,1.5", "pods: '1.5' is not a whole number"),
    ],
)
def test_a_bad_line_of_csv(write: Write, line: str, reason: str) -> None:
    path = write("a.csv", f"arrival,run_seconds,cpu,pods\n{line}\n5,5,5,5\n")
    found, faults, _ = read(path)
    assert [str(line) for line in faults.shown] == [f"{path}:2: {reason}"]
    assert [job.arrival for job in found] == [5]


def test_a_byte_order_mark_is_no_part_of_a_column(write: Write) -> None:
    (job,) = read(write("a.csv", "\ufeffarrival,run_seconds,cpu\n5,5,5\n"))[0]
    assert job.arrival == 5


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("arrival,run_second,cpu", "unknown column 'run_second'; did you mean run_seconds"),
        ("arrival,cpu", "column run_seconds is missing"),
        ("arrival,arrival,run_seconds", "a column is named twice"),
        ("", "column arrival is missing"),
        ("arrival;run_seconds;cpu", "separated by ';'; separate them by commas"),
    ],
)
def test_a_csv_file_names_its_columns(write: Write, head: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(write("a.csv", head + "\n"))


YAML = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: ml
  creationTimestamp: 2024-05-01T00:00:00Z
  labels: {kueue.x-k8s.io/queue-name: team, kueue.x-k8s.io/priority-class: high}
  annotations: {kueuelib.dev/checkpoint-seconds: "30"}
spec:
  parallelism: 3
  completions: 3
  template:
    metadata: {annotations: {kueuelib.dev/run-seconds: "90"}}
    spec:
      nodeSelector: {zone: a}
      containers: [{name: c, resources: {requests: {cpu: 2}}}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: high}
value: 7
---
apiVersion: v1
kind: List
items:
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: Workload
  metadata:
    name: w
    annotations: {kueuelib.dev/run-seconds: "5", kueuelib.dev/arrival-seconds: "40"}
  spec:
    queueName: team
    priority: 3
    podSets:
    - name: a
      count: 2
      template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}
- apiVersion: batch/v1
  kind: Job
  metadata: {name: bad}
  spec: {template: {spec: {containers: [{name: c}]}}}
"""


def test_jobs_and_workloads_as_manifests(write: Write) -> None:
    path = write("a.yaml", YAML)
    (job, workload), faults, source = read(path)
    assert (job.name, job.namespace, job.queue, job.priority) == ("train", "ml", "team", 7)
    assert (job.arrival, job.run_seconds, job.checkpoint_seconds) == (1714521600, 90, 30)
    assert requests(job) == (3, {CPU: "2"})
    assert job.pod_sets[0].raw()["template"]["spec"]["nodeSelector"] == {"zone": "a"}
    assert (f"{workload.namespace}/{workload.name}", workload.arrival, workload.run_seconds) == (
        "default/w",
        40,
        5,
    )
    assert (workload.queue, workload.priority) == ("team", 3)
    reason = "Job default/bad has no annotation kueuelib.dev/run-seconds"
    assert [str(line) for line in faults.shown] == [f"{path}:4: metadata.annotations: {reason}"]
    assert [obj["kind"] for obj in source.objects] == ["WorkloadPriorityClass"]


def test_a_job_whose_topology_a_webhook_refuses_is_a_bad_line(write: Write) -> None:
    both = (
        '{kueuelib.dev/run-seconds: "90", kueue.x-k8s.io/podset-required-topology: rack, '
        "kueue.x-k8s.io/podset-preferred-topology: rack}"
    )
    jobs, faults, _ = read(write("a.yaml", YAML.replace('{kueuelib.dev/run-seconds: "90"}', both)))
    assert [job.name for job in jobs] == ["w"]
    assert "Job ml/train: spec.template.metadata.annotations" in str(faults.shown[0])


GENERATOR = """\
cohorts:
- className: cohort
  count: 2
  queuesSets:
  - className: cq
    count: 2
    nominalQuota: 20
    borrowingLimit: 100
    reclaimWithinCohort: Any
    withinClusterQueue: LowerPriority
    workloadsSets:
    - count: 2
      creationIntervalMs: 100
      workloads:
      - {className: small, runtimeMs: 200, priority: 50, request: 1}
      - {className: large, runtimeMs: 1000, priority: 200, request: 20}
"""


@pytest.mark.parametrize("text", [GENERATOR, GENERATOR.split("\n", 1)[1]])
def test_the_generator_of_the_performance_test(write: Write, text: str) -> None:
    found, _, source = read(write("generator.yaml", text))
    kinds = [obj["kind"] for obj in source.objects]
    assert [kinds.count(kind) for kind in ("ResourceFlavor", "ClusterQueue")] == [1, 4]
    mine = [job for job in found if job.queue == "cq-0-1-cohort-1"]
    assert [job.name for job in mine] == [
        "small-0-0-0",
        "large-0-0-1",
        "small-0-1-0",
        "large-0-1-1",
    ]
    assert [job.arrival for job in mine] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert [job.run_seconds for job in mine[:2]] == [0.2, 1.0]
    assert requests(mine[1]) == (1, {CPU: "20"})
    assert mine[1].priority == 200


def test_what_a_generator_asks_for_and_is_not_simulated_is_refused(write: Write) -> None:
    path = write("generator.yaml", GENERATOR.replace("request: 20", "tasLevel: rack"))
    with pytest.raises(ConfigError, match="workloads.tasLevel: is not simulated"):
        read(path)


SYNTHETIC = """\
seed: 7
days: 2
arrivals: daily
jobs: 2000
queues: {a: 3, b: 1}
shapes:
- {weight: 3, cpu: 1, memory: 1Gi, runSeconds: {median: 600, sigma: 1}}
- {weight: 1, gpu: 8, pods: 4, priority: 9, runSeconds: {median: 60}}
"""


def test_a_synthetic_load_is_the_same_for_the_same_seed(write: Write) -> None:
    path = write("synthetic.yaml", SYNTHETIC)
    found = read(path)[0]
    assert found == read(path)[0]
    assert found != read(write("synthetic.yaml", SYNTHETIC.replace("seed: 7", "seed: 8")))[0]
    assert len(found) == pytest.approx(2000, rel=0.1)
    assert sum(job.queue == "a" for job in found) == pytest.approx(1500, rel=0.1)
    noon = sum(0.25 <= job.arrival / 86400 % 1 < 0.75 for job in found)
    assert noon > 0.7 * len(found)
    runs = sorted(job.run_seconds for job in found if job.priority == 0)
    assert runs[len(runs) // 2] == pytest.approx(600, rel=0.15)
    assert {job.run_seconds for job in found if job.priority} == {60}


def test_a_synthetic_load_can_be_scaled_and_a_recorded_one_cannot(write: Write) -> None:
    path = write("synthetic.yaml", SYNTHETIC)
    found = list(reader("synthetic", 1.2)(path, Faults(), TraceSource()))
    assert len(found) == pytest.approx(2400, rel=0.1)
    with pytest.raises(ConfigError, match="recorded"):
        reader("swf", 1.2)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("seed: 7", "sed: 7", "sed: unknown key"),
        ("jobs: 2000", "jobs: many", "jobs: 'many' is not a number"),
        ("daily", "nightly", "arrivals: 'nightly'"),
        ("cpu: 1,", "cpu: x,", r"shapes\[0\].cpu: 'x' is not a Kubernetes quantity"),
        ("{a: 3, b: 1}", "{a: 0}", "queues: nothing has a weight"),
        ("seed: 7", "seed: [", "malformed YAML"),
    ],
)
def test_a_mistake_in_a_description_is_named(
    write: Write, old: str, new: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(write("synthetic.yaml", SYNTHETIC.replace(old, new)))


def test_a_name_that_does_not_say_its_format_is_refused() -> None:
    assert format_of(Path("a/b.swf.gz")) == "swf"
    assert format_of(Path("generator.yaml")) == "generator"
    with pytest.raises(ConfigError, match="add --format with one of csv"):
        format_of(Path("trace.txt"))


def test_a_folder_is_a_trace_only_with_the_tables_of_one(write: Write, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"without pai_job_table\.csv and pai_task_table\.csv"):
        format_of(tmp_path)
    for table in ("pai_job_table.csv", "pai_task_table.csv"):
        write(table, "")
    assert format_of(tmp_path) == "pai"


def test_a_description_under_another_name_gets_a_hint(write: Write) -> None:
    with pytest.raises(ConfigError, match="or say --format synthetic or generator"):
        read(write("mine.synthetic.yaml", SYNTHETIC))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_file_that_is_missing_or_noise_is_an_error_of_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        list(FORMATS[name](tmp_path / "nowhere", Faults(), TraceSource()))
    noise = tmp_path / "noise"
    noise.write_bytes(bytes(range(256)) * 4)
    faults = Faults()
    with contextlib.suppress(ConfigError):
        assert list(FORMATS[name](noise, faults, TraceSource())) == []
        assert faults.bad
