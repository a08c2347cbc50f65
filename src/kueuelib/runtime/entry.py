"""How a program of ours enters its event loop."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import anyio

from kueuelib.errors import KueuelibError
from kueuelib.runtime.failures import INTERRUPTED, reported

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
