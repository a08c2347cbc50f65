"""Imports that leave out what a program does not use."""

from __future__ import annotations

import gc
import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

CERTIFICATES: Final = "SSL_CERT_FILE"


@contextmanager
def light_imports(*, serves: bool = False) -> Iterator[None]:
    """Spare 6 MB in imports inside: rich, certificates of the system, and generated source code.

    structlog imports rich for tracebacks that we never print. aiohttp loads the certificates for
    connections without a TLS context; each of ours has its own. attrs keeps the source of the
    methods that it generates for tracebacks: it is dropped before the start needs more memory.
    What is imported already stays, and what is imported here is not garbage later: collections
    leave it out, and would find nothing meanwhile. A program that serves looks once for the garbage
    that attrs makes. Those who do not use attrs come first, because they make none. Others end
    sooner than this search would pay.

    Args:
        serves: whether the program serves HTTP.
    """
    from kueuelib.runtime.entry import uncollected

    modules: dict[str, Any] = sys.modules
    hides, stated = "rich" not in modules, os.environ.get(CERTIFICATES)
    if hides:
        modules["rich"] = None
    os.environ[CERTIFICATES] = os.devnull
    try:
        with uncollected():
            if serves:
                import aiohttp.web  # noqa: F401 - see above

                gc.freeze()
            yield
            if not serves:
                gc.freeze()
    finally:
        linecache.clearcache()
        gc.freeze()
        if hides:
            del modules["rich"]
        del os.environ[CERTIFICATES]
        if stated is not None:
            os.environ[CERTIFICATES] = stated
