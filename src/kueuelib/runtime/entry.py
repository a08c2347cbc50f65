"""How a program of ours enters its event loop, and gives memory back."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

import anyio

from kueuelib.errors import KueuelibError
from kueuelib.runtime.failures import INTERRUPTED, reported

# ---- gives free memory back to the system, and keeps garbage collection out of busy moments ------

_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc only: it otherwise keeps the free memory between two pieces in use."""


def give_back() -> None:
    """Gives free memory back, in a thread, because that takes milliseconds."""
    if _TRIM is not None:
        threading.Thread(target=_TRIM, args=(0,), name="kueuelib-memory", daemon=True).start()


@contextmanager
def uncollected() -> Iterator[None]:
    """Pauses the garbage collector, which takes four times as long as the work it interrupts."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# --------------------------------------------------------------------------------------------------

T = TypeVar("T")
Args = TypeVarTuple("Args")


def run_program(main: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
    """Run a program to its end, on uvloop when it is installed (`pip install kueuelib[fast]`).

    Args:
        main: the program.
        args: what to call it with.

    Returns:
        What the program returned.
    """
    fast = find_spec("uvloop") is not None
    return anyio.run(main, *args, backend_options={"use_uvloop": fast})


def run_script(main: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
    """As `run_program`, for the last line of a script.

    Args:
        main: the program.
        args: what to call it with.

    Raises:
        SystemExit: the program failed with one of our errors, which is on stderr in one line, or
            was interrupted. The exit code is 2 when what it was given cannot work.
    """
    try:
        run_program(main, *args)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (KueuelibError, ExceptionGroup) as error:
        sys.exit(reported(error, Path(sys.argv[0]).name))


def run_logged(main: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
    """As `run_script`, with our log lines on stderr unless the program has its own.

    Args:
        main: the program.
        args: what to call it with.
    """
    from kueuelib.runtime import logs

    logs.configure_unless_done()
    run_script(main, *args)
