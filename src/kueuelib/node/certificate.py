"""The certificate of a kubelet's server, made by another process."""

from __future__ import annotations

import sys
import time

import anyio

from kueuelib.errors import ConfigError
from kueuelib.runtime.certificates import SERVER_LIFE, issue, new_authority


async def certificate_for(host: str) -> bytes:
    """A key and a new certificate of a kubelet, PEM.

    Another process makes it, because this one would need 9 MB for it as long as it lives.

    Raises:
        ConfigError: the process cannot start, or fails.
    """
    command = [sys.executable, "-c", f"from {__name__} import show; show({host!r})"]
    try:
        done = await anyio.run_process(command, stderr=None, check=False)
    except OSError as error:
        problem = f"the user of the node cannot run this interpreter: {error.strerror}"
        fix = "use a Python that this user may execute, outside another user's home directory"
        raise ConfigError(sys.executable or "Python", problem, fix) from error
    if done.returncode:
        problem = f"the program that makes it ended with {done.returncode}"
        raise ConfigError("the kubelet's certificate", problem, "start the node again")
    return done.stdout


def show(host: str) -> None:
    """Prints a key and a new certificate."""
    now = time.time()
    authority = new_authority("kueuelib-kubelet-ca", (), now, SERVER_LIFE)
    certificate, key = issue(authority, "kubelet", (), now, SERVER_LIFE, (host,))
    sys.stdout.buffer.write(key + certificate)
