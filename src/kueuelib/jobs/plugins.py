"""Integrations that do not come with kueuelib: of installed packages, modules and files.

A package offers an integration to the bundled manager as an entry point of the group
`kueuelib.jobs`; the name of the entry point is the name of the integration, so that only packages
that the configuration names are ever imported:

    [project.entry-points."kueuelib.jobs"]
    "ml.example.com/training" = "training:integration"
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from kueuelib.errors import ConfigError
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.generic_job import GenericJob
from kueuelib.jobs.registry import Integration, Registry

GROUP = "kueuelib.jobs"
_BROKEN = (
    *(ImportError, SyntaxError, AttributeError, NameError, TypeError, ValueError),
    *(LookupError, ArithmeticError, AssertionError, OSError, RuntimeError),
)
"""What importing somebody's module may raise."""


def installed() -> tuple[str, ...]:
    """The names of the integrations that installed packages offer; nothing is imported."""
    from importlib.metadata import entry_points

    return tuple(sorted({found.name for found in entry_points(group=GROUP)}))


def load_installed(name: str) -> Integration:
    """The integration of an installed package.

    Raises:
        ConfigError: no package offers it, it cannot be imported, or it has another name.
    """
    from importlib.metadata import entry_points

    subject = f'integration "{name}"'
    found = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if not found:
        raise ConfigError(
            subject, "no installed package offers it", f"offer an entry point of the group {GROUP}"
        )
    if len(found) > 1:
        raise ConfigError(
            subject, f"is offered more than once: {', '.join(sorted(found))}", "uninstall one"
        )
    ((value, entry),) = found.items()
    try:
        loaded = entry.load()
    except _BROKEN as error:
        problem = f"{value} cannot be loaded: {_told(error)}"
        raise ConfigError(subject, problem, "repair it") from error
    integration = _as_integration(loaded)
    if integration is None and isinstance(loaded, ModuleType):
        integration = integration_in(loaded, value)
    if integration is None:
        raise ConfigError(
            subject, f"{value} is no Integration and no GenericJob", "correct the entry point"
        )
    if integration.name != name:
        raise ConfigError(
            subject,
            f"{value} calls itself {integration.name}",
            "give the entry point and the integration the same name",
        )
    return integration


def registry_for(frameworks: Iterable[str]) -> Registry:
    """What comes with kueuelib, and what of installed packages the configuration names.

    Raises:
        ConfigError: a name is not known, or its package cannot be loaded.
    """
    registry = builtin_registry()
    offered = installed()
    for name in dict.fromkeys(frameworks):
        if name in registry.names():
            continue
        if name not in offered:
            known = ", ".join(sorted({*registry.names(), *offered}))
            raise ConfigError(
                "integrations.frameworks", f"unknown name: {name}", f"use some of: {known}"
            )
        registry = registry.register(load_installed(name))
    return registry


def load(reference: str) -> Integration:
    """The integration of `MODULE[:NAME]`; the module may also be the path of a file.

    Args:
        reference: for example `training`, `team.training:integration` or `jobs/training.py`. A
            module is looked for in the current folder too.

    Raises:
        ConfigError: there is no such module, or what it holds is not exactly one integration.
    """
    where, colon, name = reference.rpartition(":") if ":" in reference else (reference, "", "")
    module = module_at(where)
    if not colon:
        return integration_in(module, reference)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    integration = _as_integration(found)
    if integration is None:
        raise ConfigError(
            reference,
            f"{name} is no Integration and no GenericJob",
            f"name one of: {', '.join(sorted(_candidates(module))) or 'nothing in it is one'}",
        )
    return integration


def integration_in(module: ModuleType, reference: str) -> Integration:
    """The only integration of a module.

    What is an `Integration` goes first; without one, the only class of jobs that the module itself
    defines.

    Raises:
        ConfigError: there is none, or more than one.
    """
    found = _candidates(module)
    ready = {name: value for name, value in found.items() if isinstance(value, Integration)}
    chosen = ready or found
    distinct = {id(value): value for value in chosen.values()}
    if len(distinct) != 1:
        raise ConfigError(
            reference,
            f"holds {len(distinct)} integrations",
            f"write MODULE:NAME with one of: {', '.join(sorted(chosen))}"
            if chosen
            else "write a subclass of GenericJob, or declare one",
        )
    (value,) = distinct.values()
    integration = _as_integration(value)
    assert integration is not None
    return integration


def module_at(where: str) -> ModuleType:
    """A module by its name, or by the path of its file.

    Raises:
        ConfigError: there is none, or it cannot be imported.
    """
    if where.endswith(".py"):
        return _file(Path(where))
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(where)
    except ImportError as error:
        raise ConfigError(
            where, f"cannot be imported: {error}", "give a module that Python finds, or a .py file"
        ) from error
    except _BROKEN as error:
        problem = f"cannot be imported: {_told(error)}"
        raise ConfigError(where or '""', problem, "repair it") from error


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(str(path), "No such file", "give the path of a Python file")
    if str(path.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except _BROKEN as error:
        problem = f"cannot be imported: {_told(error)}"
        raise ConfigError(str(path), problem, "repair it") from error
    return module


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"


def _candidates(module: ModuleType) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Integration)
        or (_is_job_type(value) and value.__module__ == module.__name__)
    }


def _is_job_type(value: Any) -> bool:
    return (
        inspect.isclass(value) and issubclass(value, GenericJob) and not inspect.isabstract(value)
    )


def _as_integration(value: Any) -> Integration | None:
    if isinstance(value, Integration):
        return value
    return Integration.of(value) if _is_job_type(value) else None
