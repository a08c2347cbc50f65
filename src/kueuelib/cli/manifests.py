"""`kueuelib manifests`, `crds` and `dashboards`: they print objects."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kueuelib.api.crd import all_crds, write_crds
from kueuelib.api.kinds import CRDS, MANAGER_NAMESPACE
from kueuelib.api.meta import Obj, copied
from kueuelib.api.yaml_text import to_yaml
from kueuelib.app.dashboards import dashboard_text
from kueuelib.app.deployment import checked_image
from kueuelib.app.installation import checked_url
from kueuelib.app.program_manifests import (
    check_manifests,
    check_plugin_manifests,
    operator_manifests,
    plugin_manifests,
    process_manifests,
)
from kueuelib.app.programs import load
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.integration import Integration
from kueuelib.runtime.operator.declaration import Operator

# ---- `kueuelib crds` -----------------------------------------------------------------------------


def print_crds(output: Path | None) -> None:
    """Writes the CustomResourceDefinitions to a folder, or to standard output.

    Raises:
        ConfigError: the folder cannot be written.
    """
    if output is None:
        sys.stdout.write("---\n".join(to_yaml(crd) for crd in all_crds()))
        return
    try:
        write_crds(output)
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(output), problem, "give a folder that can be written") from error


# ---- `kueuelib dashboards` -----------------------------------------------------------------------


def print_dashboards(output: Path | None) -> int:
    """Prints the dashboard, or writes it to a file.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = dashboard_text()
    if output is None:
        sys.stdout.write(text)
        return 0
    try:
        output.write_text(text)
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(output), problem, "give a file that can be written") from error
    return 0


# --------------------------------------------------------------------------------------------------


def run(
    references: Sequence[str],
    namespace: str | None,
    image: str,
    webhook_url: str | None,
    *,
    plugin: bool,
) -> None:
    """Prints the objects that an operator, integrations or checks need in a cluster.

    Raises:
        ConfigError: there is nothing to run, an option does not fit, the URL is not valid, or an
            API server would refuse a definition.
    """
    image, url = checked_image(image), checked_url(webhook_url)
    objects = _manifests(references, namespace, image, url, plugin=plugin)
    _check_definitions(objects)
    sys.stdout.write("---\n".join(to_yaml(obj) for obj in objects))


def _check_definitions(objects: Sequence[Obj]) -> None:
    """Refuse what an API server would, for example a rule that is not CEL."""
    for obj in objects:
        if obj["kind"] == CRDS.kind:
            from kueuelib.embedded.registry.crd_rules import CrdRules

            rules, definition = CrdRules(), copied(obj)
            rules.default(definition)
            for error in rules.validate_create(definition):
                name = f"CustomResourceDefinition {obj['metadata']['name']}"
                raise ConfigError(name, str(error), "correct @crd or the class")


def _manifests(
    references: Sequence[str], namespace: str | None, image: str, url: str | None, *, plugin: bool
) -> list[Obj]:
    reference, *others = references
    program, where = load(reference), namespace or MANAGER_NAMESPACE
    if others or isinstance(program, Integration):
        kinds = [_kind(each) for each in references]
        if plugin:
            return [each for kind in kinds for each in plugin_manifests(kind, where)]
        run_by_us = "" if others else reference
        return process_manifests(kinds, run_by_us, where, image=image, webhook_url=url)
    if isinstance(program, Operator):
        if plugin:
            raise ConfigError("--plugin", "an operator is not part of the manager", "leave it out")
        return operator_manifests(program, reference, namespace or "", image=image, webhook_url=url)
    if plugin:
        return check_plugin_manifests(program, reference, where)
    if url is not None:
        raise ConfigError("--webhook-url", "a check has no webhooks", "leave it out")
    return check_manifests(program, reference, where, image=image)


def _kind(reference: str) -> Integration:
    """One of several kinds of jobs that run in one process."""
    program = load(reference)
    if not isinstance(program, Integration):
        problem = "is not a kind of jobs; only these can be named together"
        raise ConfigError(reference, problem, "write a command for each")
    return program
