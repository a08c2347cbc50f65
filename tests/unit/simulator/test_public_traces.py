"""Readers of published traces, each on a few lines of our own in its form."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from kueuelib.errors import ConfigError
from kueuelib.simulator.parsing import Faults
from kueuelib.simulator.readers.formats import FORMATS, format_of
from kueuelib.simulator.readers.source import TraceSource
from kueuelib.simulator.trace import TraceJob


def read(path: Path, name: str) -> tuple[list[TraceJob], Faults]:
    faults = Faults()
    return list(FORMATS[name](path, faults, TraceSource())), faults


def requests(job: TraceJob) -> list[tuple[str, int, dict[str, str]]]:
    return [(shape.name, shape.count, dict(shape.requests)) for shape in job.pod_sets]


GPU = "nvidia.com/gpu"
MILLI = "kueuelib.dev/gpu-milli"

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u1,vc1,16,32,2,COMPLETED,2020-04-01 00:00:10,x,x,60,14
8,u2,vc2,0,4,1,CANCELLED,2020-04-01 00:00:20,x,x,5,0
9,u2,vc2,3,3,2,NODE_FAIL,2020-04-01 00:00:30,x,x,5,0
10,u2,vc2,0,0,1,FAILED,2020-04-01 00:00:40,x,x,5,0
11,u2,vc2,1,1,1,FAILED,yesterday,x,x,5,0
12,u2,vc2,1,1,1,FAILED,2020-04-01 00:00:40,x,x,,0
13,u2
"""


def test_helios(tmp_path: Path) -> None:
    path = tmp_path / "helios.csv"
    path.write_text(HELIOS)
    (first, second, third), faults = read(path, "helios")
    assert requests(first) == [("main", 2, {GPU: "8", "cpu": "16"})]
    assert (first.arrival, first.run_seconds, first.end) == (1585699210, 60, "completed")
    assert (first.queue, first.vc, first.user) == ("vc1", "vc1", "u1")
    assert requests(second) == [("main", 1, {"cpu": "4"})]
    assert (second.queue, second.end) == ("vc2", "killed")
    assert requests(third) == [("main", 1, {GPU: "3", "cpu": "3"})]
    assert third.end == "failed"
    assert faults.dropped == {"neither GPUs nor CPUs": 1, "run time unknown": 1}
    assert [str(line) for line in faults.shown] == [
        f"{path}:6: submit_time: 'yesterday' is neither a number nor a date and time",
        f"{path}:8: 2 columns instead of 12",
    ]


def test_acme_has_no_virtual_clusters_and_more_columns(tmp_path: Path) -> None:
    path = tmp_path / "acme.csv"
    path.write_text(
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,duration,queue\n"
        "a,u,2,8,10,Train,TIMEOUT,2023-07-01 00:00:00+08:00,x,9,32.0\n"
    )
    ((job,), _) = read(path, "helios")
    assert (job.arrival, job.queue, job.vc, job.end) == (1688140800, "Train", "", "killed")


PHILLY = [
    {
        "status": "Pass",
        "vc": "v",
        "jobid": "application_1",
        "user": "u",
        "submitted_time": "2017-10-09 07:00:00",
        "attempts": [
            {
                "start_time": "2017-10-09 07:01:00",
                "end_time": "2017-10-09 07:02:00",
                "detail": [{"ip": "m1", "gpus": ["a", "b"]}, {"ip": "m2", "gpus": ["a", "b"]}],
            },
            {"start_time": "2017-10-09 08:00:00", "end_time": "2017-10-09 08:00:30", "detail": []},
        ],
    },
    {"status": "Killed", "vc": "v", "jobid": "2", "submitted_time": "x", "attempts": []},
    {
        "jobid": "3",
        "submitted_time": "never",
        "attempts": [
            {
                "start_time": "2017-10-09 07:01:00",
                "end_time": "2017-10-09 07:02:00",
                "detail": [{"ip": "m", "gpus": ["a"]}],
            }
        ],
    },
    {"jobid": "4", "attempts": [{"start_time": None, "end_time": None}]},
    {"jobid": "5", "attempts": [{"start_time": "2", "end_time": "1"}]},
    {"jobid": "6", "attempts": "none"},
    17,
]


def test_philly(tmp_path: Path) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_bytes(orjson.dumps(PHILLY))
    ((job,), faults) = read(path, "philly")
    assert requests(job) == [("main", 2, {GPU: "2"})]
    assert (job.name, job.run_seconds, job.queue, job.user) == ("application_1", 90, "v", "u")
    assert faults.dropped == {"no attempt that ended": 2}
    assert [str(line) for line in faults.shown] == [
        f"{path}:3: submitted_time: 'never' is neither a number nor a date and time",
        f"{path}:5: attempts.end_time: is before start_time",
        f"{path}:6: attempts: is not a list of objects",
        f"{path}:7: is not a JSON object",
    ]


OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p1,12000,16384,1,500,T4,LS,Succeeded,100,400,150
p2,6000,1,8,1000,,BE,Failed,100,200,100
p3,6000,1,0,0,,BE,Running,100,,120
p4,6000,1,0,0,,BE,Failed,100,110,120
p5,6000,1,0,0,,BE,Pending,100,110,
"""
NODES = """\
sn,cpu_milli,memory_mib,gpu,model
n1,32000,1024,0,
n2,64000,2048,8,T4
n3,64000,many,8,T4
"""


def test_openb(tmp_path: Path) -> None:
    path = tmp_path / "openb.csv"
    path.write_text(OPENB)
    (first, second), faults = read(path, "openb")
    assert requests(first) == [("main", 1, {"cpu": "12", "memory": "16384Mi", MILLI: "500"})]
    assert (first.arrival, first.run_seconds, first.queue) == (100, 250, "LS")
    assert dict(second.pod_sets[0].requests)[MILLI] == "8000"
    assert (second.run_seconds, second.end) == (100, "failed")
    assert faults.dropped == {"run time unknown": 1, "never started": 1}
    assert str(faults.shown[0]) == f"{path}:5: deletion_time: 110 is before scheduled_time 120"


def test_the_machines_of_openb_lie_beside_its_pods(tmp_path: Path) -> None:
    path, nodes = tmp_path / "openb.csv", tmp_path / "openb_node_list_all_node.csv"
    path.write_text(OPENB)
    nodes.write_text(NODES)
    faults, source = Faults(), TraceSource()
    assert len(list(FORMATS["openb"](path, faults, source))) == 2
    assert source.machines == {"cpu": 96, "memory": 3072 * 2**20, MILLI: 8000}
    assert str(faults.shown[0]) == f"{nodes}:4: memory_mib: 'many' is not a number"


def test_pai_2020(tmp_path: Path) -> None:
    tables = {
        "pai_job_table.header": "job_name,inst_id,user,status,start_time,end_time\n",
        "pai_job_table.csv": "j1,i,u,Terminated,1000,1100\nj2,i,u,Failed,1,2\nj3,i,u,Failed,,2\n",
        "pai_task_table.header": "job_name,task_name,inst_num,status,start_time,end_time,"
        "plan_cpu,plan_mem,plan_gpu,gpu_type\n",
        "pai_task_table.csv": "j1,ps,1,Terminated,1010,1050,600,29.3,,MISC\n"
        "j1,worker,4,Terminated,1020.5,1100,600,1,50,MISC\n"
        "j2,worker,1,Failed,,,600,1,50,MISC\n"
        "j3,worker,1,Failed,1,2,600,1,50,T4\n"
        "j3,worker,0,Failed,1,2,600,1,50,T4\n",
    }
    for name, text in tables.items():
        (tmp_path / name).write_text(text)
    assert format_of(tmp_path) == "pai"
    ((job,), faults) = read(tmp_path, "pai")
    assert requests(job) == [
        ("ps", 1, {"cpu": "6", "memory": "30004Mi"}),
        ("worker", 4, {"cpu": "6", "memory": "1024Mi", MILLI: "500"}),
    ]
    assert (job.arrival, job.run_seconds, job.queue) == (1000, 79.5, "misc")
    assert faults.dropped == {
        "task without start or end": 1,
        "job without a task that ran": 1,
        "job without start": 1,
    }
    shown = f"{tmp_path}/pai_task_table.csv:5: inst_num: '0' is less than 1"
    assert [str(line) for line in faults.shown] == [shown]


@pytest.mark.parametrize("name", ["helios", "openb"])
def test_a_table_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("arrival,run_seconds\n1,2\n")
    with pytest.raises(ConfigError, match="is missing; give the file as it was published"):
        read(path, name)
