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

from kueuelib.api.names import COMMON_FRAMEWORKS, POD_FRAMEWORK
from kueuelib.errors import ConfigError
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration, IntegrationRegistry
from kueuelib.runtime.importing import loaded

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
    integration = as_integration(offered, value)
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


def registry_for(frameworks: Iterable[str]) -> IntegrationRegistry:
    """A registry of the bundled integrations, and of those in packages that the configuration
    names; or the `common_registry`.

    Raises:
        ConfigError: a name is not known, or its package cannot be loaded.
    """
    names = dict.fromkeys(frameworks)
    if (common := common_registry(names)) is not None:
        return common
    from kueuelib.jobs.builtin import builtin_registry

    registry = builtin_registry()
    offered = installed()
    for name in names:
        if name in registry.names():
            continue
        if name not in offered:
            known = ", ".join(sorted({*registry.names(), *offered}))
            raise ConfigError(
                "integrations.frameworks", f"unknown name: {name}", f"use some of: {known}"
            )
        registry = registry.register(load_installed(name))
    return registry


def common_registry(frameworks: Iterable[str]) -> IntegrationRegistry | None:
    """A registry of batch Jobs and pods; None if the configuration names other kinds, too.

    The modules of all kinds take 1 MB, and 10 ms of each start.
    """
    names = {*frameworks}
    if not names <= COMMON_FRAMEWORKS:
        return None
    registry = IntegrationRegistry((BATCH_JOB,))
    if POD_FRAMEWORK in names:
        from kueuelib.jobs.pods.integration import POD

        registry = registry.register(POD)
    return registry


def own_kind(integration: Integration, reference: str) -> Integration:
    """The same integration, of a kind that does not come with kueuelib.

    Raises:
        ConfigError: the bundled manager queues this kind itself.
    """
    from kueuelib.jobs.builtin import builtin_registry

    for known in builtin_registry().integrations:
        if known.resource.group_kind == integration.resource.group_kind:
            kind = f"{integration.resource.kind} ({integration.resource.api_version})"
            problem = f'the manager queues jobs of kind {kind} itself, as "{known.name}"'
            serve = f"kueuelib.jobs.serve({integration.job_type.__name__})"
            fix = f'run {serve} beside a manager whose frameworks do not name "{known.name}"'
            raise ConfigError(reference, problem, fix)
    return integration


def integration_in(module: ModuleType, reference: str) -> Integration:
    """The only integration of a module.

    An `Integration` is preferred; without one, the only class of jobs that the module itself
    defines.

    Raises:
        ConfigError: there is none, or more than one.
    """
    offered = candidates(module)
    ready = {name: value for name, value in offered.items() if isinstance(value, Integration)}
    chosen = ready or offered
    distinct = {id(value): value for value in chosen.values()}
    if len(distinct) != 1:
        raise ConfigError(
            reference,
            f"holds {len(distinct)} integrations",
            f"write MODULE:NAME with one of: {', '.join(sorted(chosen))}"
            if chosen
            else "declare one, or write a subclass of GenericJob",
        )
    (value,) = distinct.values()
    integration = as_integration(value, reference)
    assert integration is not None
    return integration


def candidates(module: ModuleType) -> dict[str, Any]:
    """The integrations of a module and the classes of jobs that it defines, by name."""
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


def as_integration(value: Any, subject: str) -> Integration | None:
    """An integration, or that of a class of jobs; None for anything else.

    Raises:
        ConfigError: the kind cannot be queued.
    """
    if not isinstance(value, Integration) and not _is_job_type(value):
        return None
    from kueuelib.jobs.contract.integration import check_methods
    from kueuelib.jobs.declared.declarative import check_resource, check_versions

    job_type = value.job_type if isinstance(value, Integration) else value
    if getattr(job_type, "resource", None) is None:
        fix = (
            "derive from GenericJob[Training] with a class Training that has @crd, or set resource"
        )
        raise ConfigError(subject, f"{job_type.__name__} has no kind", f"{fix} = Resource(...)")
    try:
        check_resource(getattr(job_type, "resource", None))
        check_versions(job_type.resource, job_type.other_versions)
    except ValueError as error:
        fix = f"correct {job_type.__name__}.resource, or its other_versions"
        raise ConfigError(subject, str(error), fix) from error
    if not isinstance(value, Integration):
        return Integration.of(value)
    check_methods(f"{subject}: {job_type.__name__}", job_type)
    return value
