"""Integrations that are not bundled: those of installed packages, modules and files.

A package offers an integration to the bundled manager as an entry point of the group
`kueuelib.jobs`; the name of the entry point is the name of the integration, so that only packages
that the configuration names are ever imported:

    [project.entry-points."kueuelib.jobs"]
    "ml.example.com/training" = "training:integration"
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from kueuelib.errors import ConfigError
from kueuelib.jobs.catalog.builtin import builtin_registry
from kueuelib.jobs.catalog.registry import Registry
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.declared.declaration_rules import check_resource, check_versions
from kueuelib.runtime.importing import loaded, module_at, name_in

GROUP = "kueuelib.jobs"


def installed() -> tuple[str, ...]:
    """The names of the integrations that installed packages offer; nothing is imported."""
    from importlib.metadata import entry_points

    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def load_installed(name: str) -> Integration:
    """The integration of an installed package.

    Raises:
        ConfigError: no package offers it, it cannot be imported, or it has another name.
    """
    from importlib.metadata import entry_points

    subject = f'integration "{name}"'
    by_value = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if not by_value:
        raise ConfigError(
            subject, "no installed package offers it", f"offer an entry point of the group {GROUP}"
        )
    if len(by_value) > 1:
        raise ConfigError(
            subject, f"is offered more than once: {', '.join(sorted(by_value))}", "uninstall one"
        )
    ((value, entry),) = by_value.items()
    offered = loaded(f"{subject}, {value}", entry.load, "repair or uninstall it")
    integration = _as_integration(offered, value)
    if integration is None and isinstance(offered, ModuleType):
        integration = integration_in(offered, value)
    if integration is None:
        raise ConfigError(
            subject,
            f"{value} is neither an Integration nor a GenericJob",
            "correct the entry point",
        )
    if integration.name != name:
        raise ConfigError(
            subject,
            f"{value} calls itself {integration.name}",
            "give the entry point and the integration the same name",
        )
    return integration


def registry_for(frameworks: Iterable[str]) -> Registry:
    """A registry of the bundled integrations, and of those in packages that the configuration
    names.

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
        ConfigError: there is no such module, it cannot be imported, it does not hold exactly one
            integration, or the kind is bundled.
    """
    integration = _load(reference)
    for known in builtin_registry().integrations:
        if known.resource.group_kind == integration.resource.group_kind:
            kind = f"{integration.resource.kind} ({integration.resource.api_version})"
            problem = f'the manager queues jobs of kind {kind} itself, as "{known.name}"'
            raise ConfigError(reference, problem, "give an integration of another kind")
    return integration


def _load(reference: str) -> Integration:
    where, colon, name = reference.rpartition(":") if ":" in reference else (reference, "", "")
    module = module_at(where)
    if not colon:
        return integration_in(module, reference)
    integration = _as_integration(name_in(module, name), reference)
    if integration is None:
        raise ConfigError(
            reference,
            f"{name or 'nothing'} is neither an Integration nor a GenericJob",
            f"name one of: {', '.join(sorted(_candidates(module))) or 'nothing in it is one'}",
        )
    return integration


def integration_in(module: ModuleType, reference: str) -> Integration:
    """The only integration of a module.

    An `Integration` is preferred; without one, the only class of jobs that the module itself
    defines.

    Raises:
        ConfigError: there is none, or more than one.
    """
    candidates = _candidates(module)
    ready = {name: value for name, value in candidates.items() if isinstance(value, Integration)}
    chosen = ready or candidates
    distinct = {id(value): value for value in chosen.values()}
    if len(distinct) != 1:
        raise ConfigError(
            reference,
            f"holds {len(distinct)} integrations",
            f"write MODULE:NAME with one of: {', '.join(sorted(chosen))}"
            if chosen
            else "write a subclass of GenericJob, declare one, or decorate a function with @check",
        )
    (value,) = distinct.values()
    integration = _as_integration(value, reference)
    assert integration is not None
    return integration


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


def _as_integration(value: Any, subject: str) -> Integration | None:
    if not isinstance(value, Integration) and not _is_job_type(value):
        return None
    job_type = value.job_type if isinstance(value, Integration) else value
    try:
        check_resource(getattr(job_type, "resource", None))
        check_versions(job_type.resource, job_type.other_versions)
    except ValueError as error:
        fix = f"correct {job_type.__name__}.resource, or its other_versions"
        raise ConfigError(subject, str(error), fix) from error
    return value if isinstance(value, Integration) else Integration.of(value)
