"""How a program of ours enters its event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TypeVar, TypeVarTuple

import anyio

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
