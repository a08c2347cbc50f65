"""Python on the pages runs: all blocks of a page in order, as one program.

A block uses what the earlier blocks of its page define, and what its prose calls given (`GIVEN`).
A block of a page in `QUOTING` may quote a program instead, to which the page links and which other
tests run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import yaml

from kueuelib import runtime, testing
from kueuelib.app.doctor import finding
from kueuelib.runtime import Client, kinds

from .blocks import ROOT, TUTORIALS, Block, blocks, blocks_of

Names = dict[str, Any]
PYTHON = blocks("python")
STORMS = "docs/storm.md"
QUOTING = ("docs/controller-parts.md",)
"""Pages that show parts of functions."""
RUN = sorted({block.page for block in PYTHON} - {STORMS, *TUTORIALS})
EXAMPLES = ROOT / "examples"
_LINK = re.compile(r"\]\((\.\./examples/[^)#]+\.py)\)")


@attrs.frozen
class Setting:
    """What the blocks of one page run in."""

    client: Client
    kubeconfig: Path
    names: Names
    stack: AsyncExitStack
    monkeypatch: pytest.MonkeyPatch


async def _controllers(setting: Setting, block: Block) -> None:
    if "cache.informer(Site)" in block.text:
        site = setting.names["Site"]
        operator = runtime.Operator("sites")
        operator.reconciles(site)(_nothing)
        async with testing.running(operator, setting.client):
            meta = runtime.ObjectMeta(name="one", namespace="default")
            await setting.client.of(site).create(site(metadata=meta))
        setting.names.update({"client": setting.client, "cache": runtime.Cache(setting.client)})

    if "async def test_a_site_has_its_text" in block.text:
        key = runtime.ObjectKey("default", "one")
        await setting.client.delete(setting.names["Site"].resource, key)


async def _nothing(found: Any, context: runtime.Context) -> None:
    pass


async def _parts(setting: Setting, block: Block) -> None:
    if block.text.startswith("west = "):
        setting.names.update(
            {
                "rt": runtime,
                "west_client": setting.client,
                "manager": runtime.Manager(),
                "controller": runtime.Controller("parts", None),  # type: ignore[arg-type]
                "probes": runtime.ProbeServer("127.0.0.1", 0),
            }
        )


async def _custom_jobs(setting: Setting, block: Block) -> None:
    if "JobAdapter" in block.text:
        setting.monkeypatch.syspath_prepend(str(EXAMPLES / "custom_job"))
    if "kueuelib.submit" in block.text:
        setting.monkeypatch.setenv("KUBECONFIG", str(setting.kubeconfig))
        await setting.stack.enter_async_context(testing.queueing(setting.client))
        queues = (EXAMPLES / "first_queue/queues.yaml").read_text()
        served = {each.kind: each for each in vars(kinds).values() if hasattr(each, "group_kind")}
        for each in yaml.safe_load_all(queues):
            await setting.client.create(served[each["kind"]], each)
    if ".submit(" in block.text:
        job, *_ = yaml.safe_load_all((EXAMPLES / "first_queue/jobs.yaml").read_text())
        del job["metadata"]["name"]
        job["metadata"]["generateName"] = "train-"
        job["spec"]["template"]["metadata"]["annotations"]["kueuelib.dev/run-seconds"] = "0.1"
        setting.names["job"] = job


async def _doctor(setting: Setting, block: Block) -> None:
    setting.monkeypatch.setattr(finding, "_CHECKS", dict(finding._CHECKS))


async def _face(setting: Setting, block: Block) -> None:
    names = ("Column", "Context", "KubeObject", "Operator", "Struct", "crd", "frozen", "kinds")
    setting.names.update({name: getattr(runtime, name) for name in names})
    made = "@frozen\nclass WidgetSpec(Struct):\n    size: int = 0\nclass WidgetStatus(Struct): ..."
    exec(made, setting.names)


async def _known_package(setting: Setting, block: Block) -> None:
    from kubernetes_asyncio.config import kube_config

    setting.monkeypatch.setenv("KUBECONFIG", str(setting.kubeconfig))
    where = str(setting.kubeconfig)  # the package reads the variable when it is imported
    setting.monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", where)
    if "client = await connect()" in block.text:
        setting.stack.push_async_callback(_close_client, setting.names)


async def _close_client(names: Names) -> None:
    await names["client"].close()


async def _policies(setting: Setting, block: Block) -> None:
    """The laws are tried in more worlds in `test_scheduler_policies.py`."""
    defaults = testing.check_preemption_policy.__kwdefaults__
    setting.monkeypatch.setitem(defaults, "worlds", 12)


GIVEN: dict[str, Callable[[Setting, Block], Awaitable[None]]] = {
    "docs/controllers.md": _controllers,
    "docs/controller-parts.md": _parts,
    "docs/custom-jobs.md": _custom_jobs,
    "docs/doctor.md": _doctor,
    "docs/jobs.md": _custom_jobs,
    "docs/designs/0007-face.md": _face,
    "docs/kubernetes-asyncio.md": _known_package,
    "docs/preemption-policies.md": _policies,
}
"""What the prose around a block says is there, made before the block runs."""


def _is_quoted(block: Block, page: Path) -> bool:
    """Whether one program to which the page links has all of it; `...` leaves something out."""
    parts = [_packed(part) for part in re.split(r"^ *\.\.\.$", block.text, flags=re.MULTILINE)]
    programs = [
        _packed((page.parent / link).read_text()) for link in _LINK.findall(page.read_text())
    ]
    return any(all(part in program for part in parts) for program in programs)


def _packed(code: str) -> str:
    return "".join(re.sub(r'""".*?"""', "", code).split())


async def _run(block: Block, names: Names) -> None:
    """Run one block, with its `await`s if it has any, otherwise apart from this event loop."""
    code = compile(
        block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)
    else:
        await asyncio.to_thread(exec, code, names)


@pytest.mark.api_server(simulate=True)
@pytest.mark.parametrize("page", RUN)
async def test_the_python_of_a_page_runs(
    page: str, kube_client: Client, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROOT / page
    async with AsyncExitStack() as stack:
        setting = Setting(kube_client, kubeconfig, {"__name__": "page"}, stack, monkeypatch)
        for block in (each for each in blocks_of(path) if each.language == "python"):
            if page in GIVEN:
                await GIVEN[page](setting, block)
            if page not in QUOTING or not _is_quoted(block, path):
                async with asyncio.timeout(60):
                    await _run(block, setting.names)
        tests = [value for name, value in setting.names.items() if name.startswith("test_")]
        for test in tests:
            wanted = set(inspect.signature(test).parameters)
            if wanted <= {"client"} and inspect.iscoroutinefunction(test):
                async with asyncio.timeout(60):
                    await test(**dict.fromkeys(wanted, kube_client))
            elif not wanted:
                test()


@pytest.mark.parametrize(
    "block",
    [each for each in PYTHON if "\nclass Test" in each.text and each.page not in TUTORIALS],
    ids=str,
)
def test_the_test_classes_of_a_page_pass(block: Block, tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(block.text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(EXAMPLES / "custom_job")}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_python_of_the_page_on_storms_runs(storm: testing.Storm) -> None:
    """The program is the one of `examples/hostile_world`, with Boxes instead of Notebooks."""
    folder = EXAMPLES / "hostile_world"
    names: Names = {"__name__": "page"}
    exec(_boxed((folder / "notebooks.py").read_text()), names)
    crd = yaml.safe_load(_boxed((folder / "crd.yaml").read_text()))

    def box(name: str) -> Any:
        meta = {"name": name, "namespace": "default"}
        spec = {"image": "a"}
        return {"apiVersion": "example.com/v1", "kind": "Box", "metadata": meta, "spec": spec}

    def pods_of(name: str, cluster: Any) -> list[Any]:
        owners = ((pod, pod["metadata"]["ownerReferences"][0]) for pod in cluster.objects("pods"))
        return [pod for pod, owner in owners if owner["name"] == name]

    names |= {"box": box, "pods_of": pods_of, "CRD": crd}
    names |= dict.fromkeys(("office_hours", "Training"), names["run"])
    names |= {"queues": [], "admission_check": crd, "crd": crd, "every_job_ends": pods_of}
    names |= dict.fromkeys(("jobs", "trainings"), box)
    names["controller"] = SimpleNamespace(run=names["run"])
    for block in (each for each in PYTHON if each.page == STORMS):
        exec(compile(block.text, str(block), "exec", dont_inherit=True), names)
    seen = []
    names["test_boxes"](lambda trial: seen.append(storm(trial, seeds=range(1, 4))))
    assert seen[0].seeds == 3


def _boxed(text: str) -> str:
    return text.replace("notebooks", "boxes").replace("Notebook", "Box").replace("notebook", "box")


def test_a_quote_is_a_part_of_a_program_that_the_page_links_to() -> None:
    page = ROOT / "docs/controller-parts.md"
    quoted = [_is_quoted(block, page) for block in blocks_of(page) if block.language == "python"]
    assert sum(quoted) == len(quoted) - 1
    assert not _is_quoted(Block("", 0, "python", "manager = Manager(1)\n"), page)
