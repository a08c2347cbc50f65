"""Checks of installed packages and of modules.

A package offers a check to the bundled manager as an entry point of the group `kueuelib.checks`;
its name is the controller name, its value the check:

    [project.entry-points."kueuelib.checks"]
    "example.com/budget" = "budget_check:budget"
"""

from __future__ import annotations

from types import ModuleType

from kueuelib.checks.definition import Check
from kueuelib.errors import ConfigError
from kueuelib.runtime.importing import loaded

GROUP = "kueuelib.checks"


def installed() -> tuple[Check, ...]:
    """The checks that installed packages offer, by controller name.

    Raises:
        ConfigError: one cannot be imported, is not a check, or has another name; the message names
            the package and how to remove it.
    """
    from importlib.metadata import entry_points

    checks = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        package = "its package" if entry.dist is None else entry.dist.name
        subject = f'check "{entry.name}" of the package {package}'
        way_out = f"or remove it: pip uninstall {package}"
        offered = loaded(f"{subject}, {entry.value}", entry.load, f"repair it, {way_out}")
        if not isinstance(offered, Check):
            raise ConfigError(
                subject, f"{entry.value} is not a check", f"decorate it with @check, {way_out}"
            )
        if offered.controller_name != entry.name:
            raise ConfigError(
                subject,
                f"{entry.value} calls itself {offered.controller_name}",
                f"give the entry point and the check the same name, {way_out}",
            )
        checks.append(offered)
    return tuple(checks)


def checks_in(module: ModuleType) -> tuple[Check, ...]:
    """The checks of a module, in the order of their definition; each once."""
    return tuple(
        dict.fromkeys(value for value in vars(module).values() if isinstance(value, Check))
    )
