"""What admission checks of users need in a cluster, as raw objects for `kubectl apply`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kueuelib.api.kinds import ADMISSION_CHECKS, EVENTS, LEASES, WORKLOADS
from kueuelib.api.meta import Obj
from kueuelib.app.process_objects import binding, deployment, meta, named, role, rule
from kueuelib.checks.definition import Check
from kueuelib.checks.heartbeats import lease_name
from kueuelib.controllers.manifests import SERVICE_ACCOUNT
from kueuelib.errors import ConfigError

_READ = ("get", "list", "watch")


def check_manifests(
    checks: Sequence[Check], reference: str, namespace: str, *, image: str
) -> list[Obj]:
    """What a process with checks needs, in the order of creation.

    Everything has the name of the Lease. The permissions are those of the library; what the
    functions do with the client of `current()` needs further ones.

    Args:
        checks: those of the process.
        reference: what `kueuelib run` is given in the Deployment.
        namespace: where it runs; in that of the manager, the manager notices when it is gone.
        image: of the Deployment: with kueuelib and the module.
    """
    name = lease_name(checks[0].controller_name)
    lease = named(LEASES, name, ["get", "update"])
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(name, namespace)},
        role("ClusterRole", name, "", [*_library_rules(checks), *_own_rules(checks)]),
        binding("ClusterRole", name, "", name, namespace),
        role("Role", name, namespace, lease),
        binding("Role", name, namespace, name, namespace),
        deployment(name, namespace, reference, image, ports={}),
    ]


def check_plugin_manifests(checks: Sequence[Check], reference: str, namespace: str) -> list[Obj]:
    """What the bundled manager needs for checks that it runs itself, beyond its own permissions.

    Raises:
        ConfigError: nothing.
    """
    name, rules = f"{lease_name(checks[0].controller_name)}-plugin", [*_own_rules(checks)]
    if not rules:
        raise ConfigError(
            f"--plugin {reference}",
            "the manager has every permission that a check without parameters needs",
            "offer the check as an entry point of the group kueuelib.checks",
        )
    return [
        role("ClusterRole", name, "", rules),
        binding("ClusterRole", name, "", SERVICE_ACCOUNT, namespace),
    ]


def _library_rules(checks: Sequence[Check]) -> Iterator[Obj]:
    releases = any(check.release is not None for check in checks)
    yield rule(ADMISSION_CHECKS, _READ)
    yield rule(ADMISSION_CHECKS, ["patch"], "admissionchecks/status")
    yield rule(WORKLOADS, [*_READ, "patch"] if releases else _READ)
    yield rule(WORKLOADS, ["patch"], "workloads/status")
    yield rule(EVENTS, ["create", "patch"])


def _own_rules(checks: Sequence[Check]) -> Iterator[Obj]:
    for kind in dict.fromkeys(check.parameters for check in checks if check.parameters):
        yield rule(kind, _READ)
    for kind in dict.fromkeys(check.owned.resource for check in checks if check.owned):
        yield rule(kind, [*_READ, "create", "delete"])
