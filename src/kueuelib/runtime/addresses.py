"""The addresses that servers of a program bind, and the namespace of its pod."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

from kueuelib.errors import ConfigError

# ---- the namespace of the pod that this process runs in ------------------------------------------

POD_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace(default: str) -> str:
    """The pod's namespace; `default` outside a cluster."""
    if POD_NAMESPACE_FILE.exists():
        return POD_NAMESPACE_FILE.read_text().strip()
    return default


# --------------------------------------------------------------------------------------------------


def parse_address(text: str, subject: str) -> tuple[str, int] | None:
    """Host and port of `host:port` or `:port`; None for `0`, which turns a server off.

    Args:
        text: the address.
        subject: what to name in errors, for example the configuration's key.

    Raises:
        ConfigError: it is not an address.
    """
    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError(subject, f"{text!r} is not an address", "write host:port, or :port")
    return host.removeprefix("[").removesuffix("]"), int(port)


async def check_servable(host: str, port: int, *, subject: str = "") -> None:
    """Refuses an address that `serving` could not bind now; nothing is served.

    Args:
        host: the address to bind; all of them when empty.
        port: 0 for any free one.
        subject: what to name in errors besides the address.

    Raises:
        ConfigError: the address cannot be bound.
    """
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(asyncio.Protocol, host or None, port)
    except OSError as error:
        raise unbound(host, port, subject, error) from error
    server.close()
    await server.wait_closed()


def unbound(host: str, port: int, subject: str, error: OSError) -> ConfigError:
    """The error for an address that cannot be bound; it names the address and the fix."""
    address = f"{host or '*'}:{port}"
    named = f"{subject}: {address}" if subject else address
    if error.errno == errno.EADDRINUSE:
        fix = "end the program that uses it, or choose another address"
        return ConfigError(named, "the address is in use", fix)
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return ConfigError(named, f"the address cannot be served ({reason})", "choose another address")
