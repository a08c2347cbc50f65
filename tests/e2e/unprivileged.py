"""Runs `kueuelib node`, which refuses to run as root, also where the tests do."""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
import time

import pytest

from kueuelib.node.sandbox import find_bwrap

ANOTHER_USER = 54_321


@functools.cache
def dropped() -> tuple[str, ...]:
    """What to put in front of a command that refuses to run as root.

    A user namespace lets root run a program as a user without rights, who still reads root's
    files. All commands share one, so that they may see each other's processes.
    """
    if os.geteuid() != 0:
        return ()
    command = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "cat"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    atexit.register(holder.kill)
    enter = ("nsenter", f"--target={holder.pid}", "--user", "--preserve-credentials")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and holder.poll() is None:
        done = subprocess.run([*enter, "id", "-u"], check=False, capture_output=True, text=True)
        if done.stdout.strip() == "1000":
            return enter
        time.sleep(0.01)
    pytest.skip("the tests run as root, and `unshare --user` cannot drop its rights")


@functools.cache
def of_another_user() -> tuple[str, ...]:
    """What to put in front of a command so that the kernel limits its processes, as never root's.

    This user is another one outside of namespaces, too, so not every file of root can be read.
    """
    if os.geteuid() != 0:
        return ()
    drop = (*("setpriv", f"--reuid={ANOTHER_USER}", f"--regid={ANOTHER_USER}"), "--clear-groups")
    script = "import kueuelib.cli, subprocess, sys; subprocess.run([sys.executable, '--version'])"
    for command in ([sys.executable, "-c", script], [find_bwrap() or "", "--version"]):
        if subprocess.run([*drop, *command], check=False, capture_output=True).returncode:
            pytest.skip(f"the tests run as root, and no other user can run {command[0]}")
    return drop


@functools.cache
def without_sandbox() -> str:
    """Why the sandbox does not work here; empty if it does."""
    if (bwrap := find_bwrap()) is None:
        return "bubblewrap is not installed"
    command = [*dropped(), bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/"]
    done = subprocess.run([*command, "true"], check=False, capture_output=True, text=True)
    return f"bubblewrap does not work: {done.stderr.strip()}" if done.returncode else ""
