"""What a program imports while its memory is small, and what it spares."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("serves", [False, True])
def test_the_server_of_a_program_that_serves_is_imported_at_once(serves: bool) -> None:
    code = (
        "import sys\n"
        "from kueuelib.cli.light_imports import light_imports\n"
        f"with light_imports(serves={serves}): pass\n"
        "print('aiohttp.web' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == str(serves)


def test_only_commands_that_make_pages_import_their_templates() -> None:
    commands = ("explain.command", "pending", "doctor", "manager")
    modules = ", ".join(f"kueuelib.cli.{command}" for command in commands)
    code = f"import sys, {modules}\nprint('jinja2' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("serves", [False, True])
def test_only_a_program_that_serves_looks_for_the_garbage_of_its_imports(serves: bool) -> None:
    code = (
        "import gc\n"
        "from kueuelib.cli.light_imports import light_imports\n"
        "gc.freeze()\n"
        f"with light_imports(serves={serves}):\n"
        "    searches = []\n"
        "    gc.callbacks.append(lambda phase, info: searches.append(info['collected']))\n"
        "    import kueuelib.cli.pending\n"
        "gc.callbacks.clear()\n"
        "print(sum(searches))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    found = int(done.stdout)
    assert found > 1000 if serves else found == 0


@pytest.mark.parametrize("command", ["pending", "report.command"])
def test_answers_import_no_servers_and_no_search(command: str) -> None:
    """Most of the time until an answer is for imports."""
    spared = (
        *("aiohttp", "cryptography", "kubernetes_asyncio", "prometheus_client", "rich"),
        *("re2", "jsonpatch", "urllib.request", "kueuelib.embedded", "kueuelib.simulator"),
        *("kueuelib.machinery.election", "kueuelib.machinery.reflector_protocol"),
        *("kueuelib.scheduler.explain.search", "kueuelib.workload.states"),
    )
    code = (
        "import sys\n"
        "from kueuelib.cli.light_imports import light_imports\n"
        f"with light_imports(): import kueuelib.cli.{command}\n"
        f"print([name for name in {spared} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_adapters_import_most_of_the_library_with_the_first_job() -> None:
    """Airflow imports its DAGs again and again."""
    code = (
        "import sys, kueuelib.integrations.waiting\n"
        "print([name for name in sys.modules if name.startswith('kueuelib.jobs')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
