"""Gives free memory back to the system, and keeps garbage collection out of busy moments."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LARGE: Final = 64 * 1024
"""From this many bytes of JSON on, decoding makes so many objects that a collection takes long."""

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
