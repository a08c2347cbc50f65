"""Memory that is free goes back to the system."""

from __future__ import annotations

import ctypes
import threading
from typing import Final

_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Only glibc has it, which otherwise keeps what lies between two pieces in use."""


def give_back() -> None:
    """Gives free memory back, in a thread, as it takes milliseconds."""
    if _TRIM is not None:
        threading.Thread(target=_TRIM, args=(0,), name="kueuelib-memory", daemon=True).start()
