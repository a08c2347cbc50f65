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
from kueuelib.jobs.plugins import module_at

GROUP = "kueuelib.checks"


def installed() -> tuple[Check, ...]:
    """The checks that installed packages offer, by controller name.

    Raises:
        ConfigError: one cannot be imported, is no check, or calls itself differently.
    """
    from importlib.metadata import entry_points

    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        subject = f'check "{entry.name}"'
        try:
            loaded = entry.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                subject, f"{entry.value} cannot be loaded: {error}", "repair or uninstall it"
            ) from error
        if not isinstance(loaded, Check):
            raise ConfigError(subject, f"{entry.value} is no check", "decorate it with @check")
        if loaded.controller_name != entry.name:
            raise ConfigError(
                subject,
                f"{entry.value} calls itself {loaded.controller_name}",
                "give the entry point and the check the same name",
            )
        found.append(loaded)
    return tuple(found)


def load(reference: str) -> tuple[Check, ...]:
    """The checks of `MODULE[:NAME]`; the module may also be the path of a file.

    Returns:
        All checks of the module, or the one of that name; nothing when there are none.

    Raises:
        ConfigError: there is no such module.
    """
    where, colon, name = reference.rpartition(":") if ":" in reference else (reference, "", "")
    module = module_at(where)
    if not colon:
        return checks_in(module)
    found = getattr(module, name, None)
    return (found,) if isinstance(found, Check) else ()


def checks_in(module: ModuleType) -> tuple[Check, ...]:
    """The checks of a module, in the order of their definition; each once."""
    return tuple(
        dict.fromkeys(value for value in vars(module).values() if isinstance(value, Check))
    )
