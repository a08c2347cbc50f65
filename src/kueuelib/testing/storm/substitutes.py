"""Replaces time, randomness and cryptography in a simulating process.

Everything is process-wide and permanent: a process that has simulated must not be used for anything
else.
"""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import logging
import os
import random
import socket
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType
from typing import Any

import attrs
import structlog

from kueuelib.controllers import admission
from kueuelib.embedded import credentials as tls
from kueuelib.embedded.admission import dialling
from kueuelib.machinery.options import ReflectorOptions
from kueuelib.runtime import informer
from kueuelib.runtime.certificates import Certificates, ServerNames
from kueuelib.runtime.clock import SystemClock
from kueuelib.runtime.manager import Signals
from kueuelib.runtime.webhook import trust
from kueuelib.testing.storm.loop import OWNER, StormLoop

_CHANCE = (
    *("betavariate", "choice", "choices", "expovariate", "gauss", "getrandbits", "normalvariate"),
    *("randbytes", "randint", "random", "randrange", "sample", "shuffle", "triangular", "uniform"),
)
_PEM = b"-----BEGIN CERTIFICATE-----\nc3Rvcm0=\n-----END CERTIFICATE-----\n"
_UNSAID = ("event", "component", "reconcile")  # an id would be drawn
_LOG_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Tell = Callable[[str], None]


def install(loop: StormLoop, tell: Tell | None = None) -> None:
    """Make this process simulate.

    Args:
        loop: the source of time.
        tell: gets every line that simulated processes log; None: they log nothing.
    """
    _replace_clocks(loop)
    _replace_chance()
    _replace_cryptography()
    _remember_plugins()
    _replace_signals()
    _quiet(tell)
    logging.disable(logging.WARNING)
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)
    logging.getLogger("kueuelib").addHandler(_Problems(loop))
    # Garbage is collected at the same step in every run, and never automatically.
    gc.disable()
    for name in ("collect", "freeze", "set_threshold", "enable"):
        setattr(gc, name, lambda *_: 0)


def stream_lists() -> None:
    """Let all informers that are made from now on fill their stores from watches."""
    options = ReflectorOptions(stream_lists=True)
    setattr(informer, ReflectorOptions.__name__, lambda: options)


def _replace_clocks(loop: StormLoop) -> None:
    """Replace clocks, even in modules that have imported one by name."""
    clocks: dict[Any, Callable[..., Any]] = {
        time.time: loop.wall,
        time.monotonic: loop.time,
        time.perf_counter: loop.time,
        time.time_ns: lambda: int(loop.wall() * 1e9),
        time.monotonic_ns: lambda: int(loop.time() * 1e9),
        time.perf_counter_ns: lambda: int(loop.time() * 1e9),
    }
    for module in list(sys.modules.values()):
        if module is sys.modules[__name__] or getattr(module, "__name__", "") == "selectors":
            continue
        for name, value in list(vars(module).items()) if hasattr(module, "__dict__") else ():
            if type(value) is BuiltinFunctionType and value in clocks:
                setattr(module, name, clocks[value])
    for name, clock in (("now", loop.wall), ("monotonic", loop.time)):
        setattr(SystemClock, name, clock)
    # No time passes while a cycle decides: others run after each of its heads.
    setattr(admission, "LONGEST_STRETCH", 0.0)  # noqa: B010 - it is final


def _replace_chance() -> None:
    def bytes_of(size: int) -> bytes:
        return OWNER.get().chance.randbytes(size)

    os.urandom = bytes_of
    for name, draw in (
        ("randbytes", lambda _, size: bytes_of(size)),
        ("getrandbits", lambda _, bits: int.from_bytes(bytes_of(-(-bits // 8))) >> -bits % 8),
        ("random", lambda _: (int.from_bytes(bytes_of(7)) >> 3) * 2.0**-53),
    ):
        setattr(random.SystemRandom, name, draw)
    for name in _CHANCE:
        setattr(random, name, _drawing(name))
    socket.gethostname = lambda: OWNER.get().name


def _drawing(name: str) -> Callable[..., Any]:
    def draw(*args: Any, **options: Any) -> Any:
        return getattr(OWNER.get().chance, name)(*args, **options)

    return draw


@attrs.frozen
class _PlainCredentials(tls.Credentials):
    """Credentials of a server without TLS."""

    def server_context(self) -> ssl.SSLContext:
        """A context that will not be used."""
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _replace_cryptography() -> None:
    """Replace TLS, which is tested elsewhere and whose keys differ each time."""
    certificates = Certificates(_PEM, b"ca key", _PEM, b"key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def renewed(
        present: Certificates | None, names: ServerNames, now: float, *, organisation: str = ""
    ) -> Certificates:
        del names, now, organisation
        return present or certificates

    def credentials(*_: object) -> tls.Credentials:
        return _PlainCredentials(_PEM, *(_PEM, b"key") * 3)

    for home, name, substitute in (
        (trust, "renewed", renewed),
        (trust, "load", lambda *_: None),
        (tls, "credentials", credentials),
        (dialling.Contexts, "trusting", lambda *_: context),
    ):
        setattr(home, name, substitute)


def _remember_plugins() -> None:
    """Search for entry points only once, because nothing is installed during a storm."""
    looked = functools.cache(importlib.metadata.entry_points)
    setattr(importlib.metadata, "entry_points", looked)  # noqa: B010 - it is overloaded


def _replace_signals() -> None:
    """Replace signal handlers, because several simulated processes share this one."""
    for name in ("__enter__", "__exit__"):
        setattr(Signals, name, lambda *_: None)


class _Problems(logging.Handler):
    """Keeps errors that the server reports about itself."""

    def __init__(self, loop: StormLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        error = record.exc_info[1] if record.exc_info else None
        end = "" if error is None else f": {error!r}"
        self._loop.problems.append(f"{record.name}: {record.getMessage()}{end}")


def _quiet(tell: Tell | None) -> None:
    """Pass log lines on, or drop them."""
    if tell is None:
        structlog.configure(
            processors=[_drop],
            wrapper_class=structlog.make_filtering_bound_logger(50),
            cache_logger_on_first_use=False,
        )
        return

    def hand_over(_: Any, level: str, event: Mapping[str, Any]) -> Any:
        said = {key: value for key, value in event.items() if key not in _UNSAID}
        words = " ".join(f"{key}={value}" for key, value in sorted(said.items()))
        tell(f"{level} {event.get('component', '')}: {event.get('event')} {words}".rstrip())
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, hand_over],
        wrapper_class=structlog.make_filtering_bound_logger(_LOG_LEVELS["info"]),
        cache_logger_on_first_use=False,
    )


def _drop(*_: Any) -> Any:
    raise structlog.DropEvent
