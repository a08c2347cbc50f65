"""What goes wrong between us and a server, below `TransportError`."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

CHECK_PROXY: Final = "check this proxy, or name the server in the variable NO_PROXY"


class NetworkError(Exception):
    """A connection, or what came over it."""


class NoConnection(NetworkError):
    """There is no connection to the server, or to its proxy.

    Args:
        error: what the system says.

    Attributes:
        error: what the system says.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"no connection ({_reason(error)})")
        self.error = error


class NoProxy(NoConnection):
    """The server is asked through a proxy, which cannot be reached, or does not reach the server.

    Args:
        error: what the system or the proxy says.
        proxy: its address, and what names it.
    """

    def __init__(self, error: OSError, proxy: str) -> None:
        super().__init__(error)
        self.args = (f"no connection through the proxy {proxy} ({_reason(error)})",)


class NoTls(NoConnection):
    """There is a connection, but no TLS.

    Args:
        error: what the ssl module says.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.args = (f"no TLS connection ({error})",)


class NotTrusted(NoTls):
    """The certificate of the server is not trusted.

    Args:
        error: what the ssl module says.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.args = (f"the server's certificate is not trusted ({error})",)


class Disconnected(NetworkError):
    """The server closed the connection instead of answering.

    Args:
        error: None if it closed it in an orderly way.
    """

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__("the server disconnected" if error is None else str(error))


class BrokenAnswer(NetworkError):
    """What arrives is not an answer, or breaks off."""


def fail(waited_for: asyncio.Future[Any], error: BaseException) -> None:
    """End a wait with an error, which the one who waited may no longer want."""
    waited_for.set_exception(error)
    waited_for.exception()  # else asyncio logs that it was never retrieved


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError) and error.errno is None:
        return "not in time"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
