"""`kueuelib --help` answers at once: nothing heavy is imported for it."""

from __future__ import annotations

import os
import subprocess
import sys

HEAVY = (
    "kubernetes_asyncio",
    "aiohttp",
    "cryptography",
    "prometheus_client",
    "rich",
    "cattrs",
    "yaml",
)


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import contextlib, io, sys
from kueuelib.cli import main
sys.argv = ["kueuelib", "--help"]
with contextlib.redirect_stdout(io.StringIO()) as told, contextlib.suppress(SystemExit):
    main()
assert "apiserver" in told.getvalue()
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_every_command_explains_itself() -> None:
    for command in ("demo", "apiserver", "install", "uninstall", "manager", "crds"):
        done = subprocess.run(
            [sys.executable, "-m", "kueuelib", command, "--help"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert "Usage: kueuelib" in done.stdout


def test_without_a_command_the_help_is_the_mistake() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kueuelib"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: kueuelib [OPTIONS] COMMAND")


UNUSED = (
    *("rich", "pygments", "kubernetes_asyncio", "urllib3", "cryptography"),
    *("kueuelib.embedded", "kueuelib.recording", "kueuelib.simulator", "kueuelib.testing"),
    *("kueuelib.app.deployment", "kueuelib.app.explaining", "kueuelib.app.installation"),
    *("kueuelib.jobs.client", "kueuelib.jobs.pods", "kueuelib.scheduler.explain"),
    *("kueuelib.jobs.declared.declarative", "kueuelib.controllers.visibility.server"),
)


def test_the_manager_imports_neither_what_it_does_not_use_nor_certificates() -> None:
    code = f"""
import contextlib, io, os, ssl, sys
from kueuelib.cli import main
sys.argv = ["kueuelib", "manager", "--print-config"]
with contextlib.redirect_stdout(io.StringIO()) as told, contextlib.suppress(SystemExit):
    main()
assert "apiVersion" in told.getvalue()
from aiohttp import connector
print([name for name in {UNUSED!r} if name in sys.modules])
print(connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509"])
import rich
print(os.environ.get("SSL_CERT_FILE"))
"""
    environment = os.environ | {"SSL_CERT_FILE": "mine.pem"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment,
    )
    assert done.stdout.split() == ["[]", "0", "mine.pem"]
