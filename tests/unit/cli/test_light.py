"""`kueuelib --help` answers at once: nothing heavy is imported for it."""

from __future__ import annotations

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
