"""Imports that leave out what a program does not use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

CERTIFICATES: Final = "SSL_CERT_FILE"


@contextmanager
def light_imports() -> Iterator[None]:
    """Spare 5.5 MB in imports inside: rich, and the certificates of the system.

    structlog imports rich for tracebacks that we never print. aiohttp loads the certificates for
    connections without a TLS context; each of ours has its own. What is imported already stays.
    """
    modules: dict[str, Any] = sys.modules
    hides, stated = "rich" not in modules, os.environ.get(CERTIFICATES)
    if hides:
        modules["rich"] = None
    os.environ[CERTIFICATES] = os.devnull
    try:
        yield
    finally:
        if hides:
            del modules["rich"]
        del os.environ[CERTIFICATES]
        if stated is not None:
            os.environ[CERTIFICATES] = stated
