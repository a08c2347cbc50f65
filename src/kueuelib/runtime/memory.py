"""Memory: what is free goes back to the system, and nobody looks for garbage at a bad time."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LARGE: Final = 64 * 1024
"""Bytes of JSON from which on decoding makes so many objects that a search for garbage is long."""

_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Only glibc has it, which otherwise keeps what lies between two pieces in use."""


def give_back() -> None:
    """Gives free memory back, in a thread, as it takes milliseconds."""
    if _TRIM is not None:
        threading.Thread(target=_TRIM, args=(0,), name="kueuelib-memory", daemon=True).start()


@contextmanager
def uncollected() -> Iterator[None]:
    """The garbage collector rests: it takes four times as long as what it interrupts."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
