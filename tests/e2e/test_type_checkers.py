"""Examples, tutorials and projects of `kueuelib new` pass strict type checkers.

They see what a user sees: a wheel in an environment, and nothing of this repository.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from tutorials import ROOT, TUTORIALS, steps

from kueuelib.cli.new import KINDS, run

ENVIRONMENT = {name: text for name, text in os.environ.items() if "PYTHONPATH" not in name}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All programs of users in one place, each folder a project of its own."""
    place = tmp_path_factory.mktemp("user")
    kept = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "examples", place / "examples", ignore=kept)
    for name in TUTORIALS:
        (place / name).mkdir()
        for _, text, file in steps((ROOT / f"docs/{name}.md").read_text()):
            if file:
                (place / name / file).write_text(text)
    for kind in KINDS:
        run(kind, f"a-{kind}", place)
    return place


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of an environment with the wheel, and the other packages of this one."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel; it is in the extra `dev`")
    place = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = place.glob("*.whl")
    environment = place / "environment"
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    found = environment / "bin/python"
    where = "import kueuelib; print(kueuelib.__file__)"
    done = subprocess.run(
        [found, "-c", where], env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith(str(packages))
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy has learned of the packages: the same for all programs."""
    return tmp_path_factory.mktemp("cache")


def check(place: Path, checker: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Runs a type checker."""
    return subprocess.run(
        [sys.executable, "-m", checker, *args],
        cwd=place,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def folders(written: Path) -> list[Path]:
    """Each folder with programs, as a project of its own; inner ones first."""
    return sorted({path.parent for path in written.rglob("*.py")}, reverse=True)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("basedpyright") is None,
    reason="basedpyright is not installed; it comes with the extra `pyright`",
)
def test_pyright_finds_nothing_in_strict_mode(written: Path, python: Path) -> None:
    settings = {"typeCheckingMode": "strict", "include": [str(path) for path in folders(written)]}
    settings["executionEnvironments"] = [{"root": str(path)} for path in folders(written)]
    (written / "pyrightconfig.json").write_text(json.dumps(settings))
    done = check(written, "basedpyright", "--pythonpath", str(python), "--outputjson")
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len([*written.rglob("*.py")])
    found = [
        f"{each['file']}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in report["generalDiagnostics"]
    ]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_mypy_finds_nothing_in_strict_mode(written: Path, python: Path, cache: Path) -> None:
    for folder in folders(written):
        programs = sorted(path.name for path in folder.glob("*.py"))
        options = ["--strict", f"--cache-dir={cache}", f"--python-executable={python}"]
        done = check(folder, "mypy", *options, *programs)
        assert done.returncode == 0, done.stdout + done.stderr


def checked(checker: str, example: str, reader: str, place: Path, python: Path, cache: Path) -> str:
    """What a type checker says about a program that uses an example."""
    pytest.importorskip(checker, reason="it comes with the extra `pyright`")
    shutil.copy(ROOT / "examples" / example, place)
    (place / "reader.py").write_text(reader)
    (place / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    options = {
        "mypy": ["--strict", f"--cache-dir={cache}", f"--python-executable={python}"],
        "basedpyright": ["--pythonpath", str(python)],
    }
    return check(place, checker, *options[checker], "reader.py").stdout


MODEL_READER = """
from kubernetes_asyncio.client import V1Deployment, V1Job
from queued import SmallJob

from kueuelib.runtime import Cache, Client


async def asks(job: SmallJob, client: Client, cache: Cache) -> int:
    reveal_type(job.object.spec.parallelism)
    reveal_type(await client.of(V1Job).list())
    reveal_type(cache.informer(V1Deployment).items())
    return job.object.spec.paralelism
"""


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_fields_of_a_model_have_types_and_a_misspelt_one_is_an_error(
    checker: str, tmp_path: Path, python: Path, cache: Path
) -> None:
    said = checked(
        checker, "from_kubernetes_asyncio/queued.py", MODEL_READER, tmp_path, python, cache
    )
    assert 'is "int"' in said
    assert re.search(r"tuple\[.*V1Job, \.\.\.\]", said), said
    assert re.search(r"tuple\[.*V1Deployment, \.\.\.\]", said), said
    mistakes = re.findall(r"reader\.py:(\d+):.*error: (.*)", said)
    assert {line for line, _ in mistakes} == {"12"}, said
    assert any("paralelism" in text for _, text in mistakes), said


READER = """
from kueuelib.jobs import GenericJob
from training_typed import TrainingJob


def asks(job: TrainingJob, raw: GenericJob) -> int:
    reveal_type(job.object.spec.workers.replicas)
    reveal_type(raw.object)
    return job.object.spec.workers.replica
"""


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_fields_of_a_typed_job_have_types_and_a_misspelt_one_is_an_error(
    checker: str, tmp_path: Path, python: Path, cache: Path
) -> None:
    said = checked(checker, "custom_job/training_typed.py", READER, tmp_path, python, cache)
    shown = re.findall(r'(?:Revealed type is|Type of .* is) "(.*)"$', said, re.MULTILINE)
    assert shown == ["int", "dict[str, Any]"], said
    assert re.search('error: .*"replica"', said), said


WAITER = """
from kueuelib.runtime import Client, Obj, ObjectKey, kinds
from kueuelib.testing import eventually


async def waits(client: Client, found: dict[str, Obj]) -> None:
    async def look() -> Obj | None:
        return found.get("one") or await client.get(kinds.PODS, ObjectKey("default", "one"))

    later: Obj = await eventually(look)
    now: Obj = await eventually(lambda: found.get("one"))
    count: int = await eventually(lambda: len(found))
    print(later["metadata"], now["metadata"], count)
    reveal_type(await eventually(look))
"""


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_a_wait_for_an_optional_value_returns_the_value(
    checker: str, tmp_path: Path, python: Path, cache: Path
) -> None:
    said = checked(checker, "from_kubernetes_asyncio/queued.py", WAITER, tmp_path, python, cache)
    assert "error" not in said.replace("0 errors", ""), said
    assert re.search(r'is "(builtins\.)?dict\[[^|]*\]"', said), said
