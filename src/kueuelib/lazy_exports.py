"""How a public package offers names without importing the modules they live in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: the full name of the package.
        homes: full names of modules, each with the names that live in it, separated by spaces. A
            name `public=own` is offered under another name. A name that is the last part of its
            module means the module itself.

    Returns:
        `__getattr__`, which imports a name on first use and keeps it; `__dir__`; `__all__`.
    """
    sources: dict[str, tuple[str, str]] = {}
    for module, entries in homes.items():
        for entry in entries.split():
            public, _, own = entry.partition("=")
            sources[public] = (module, own or public)
    names = sorted(sources)

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, own = sources[name]
        home = import_module(module)
        value = home if own == module.rpartition(".")[2] else getattr(home, own)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*(own for own in vars(sys.modules[package]) if own[:2] == "__"), *names})

    return get, listed, names
