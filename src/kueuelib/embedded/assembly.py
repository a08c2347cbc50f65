"""Assembles a service: kinds, their rules, plug-ins, and initial or stored objects."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence

import orjson

from kueuelib.api.kinds import CRDS, JOBS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, SERVICES
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.admission.plugin import AdmissionPlugin, KindRules
from kueuelib.embedded.builtins.batch_rules import JobRules
from kueuelib.embedded.builtins.core_rules import NamespaceRules, NodeRules
from kueuelib.embedded.builtins.limits import LimitRangePlugin
from kueuelib.embedded.builtins.network_rules import ServiceRules
from kueuelib.embedded.builtins.pod_rules import PodRules, ServiceAccountPlugin, TolerationPlugin
from kueuelib.embedded.builtins.priority import (
    PriorityClassRules,
    PriorityPlugin,
    system_priority_classes,
)
from kueuelib.embedded.builtins.stored_rules import stored_rules
from kueuelib.embedded.conversion import HookCaller
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.storage import StorageEvent, StoredState
from kueuelib.embedded.storage.folder import DataFolder, StoredRow
from kueuelib.embedded.storage.memory import NOTHING, Journal
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import AlreadyExists, ConfigError

# ---- restores a service from a data folder -------------------------------------------------------

_LOG = logging.getLogger("kueuelib.embedded")
GAP = 10_000
"""Resource versions that are skipped after a crash.

Clients may have seen changes that were never acknowledged and are lost; their resource versions
must not be reused.
"""

CRD_TABLE = f"{CRDS.plural}.{CRDS.group}"


def restore(service: ApiService, folder: DataFolder) -> None:
    """Fills an empty service with the stored state, and saves its changes from now on.

    After a clean end the history is restored too, and watches continue. After a crash they get a
    410 and list again.

    Raises:
        ConfigError: the state is damaged.
    """
    latest = folder.latest()
    clean = folder.fact("clean") == str(latest).encode()
    history = int(folder.fact("compacted") or b"0")
    saved = max(latest, folder.begun())
    if folder.mark > saved:
        _LOG.warning(
            "%s has lost its latest records: it ends at resource version %d, and %d had been "
            "saved. What was written in between is gone, or is as it was before. The server "
            "continues without it; to have it again, stop the server and restore a copy of %s",
            folder.file,
            latest,
            folder.mark,
            folder.path,
        )
    crashed = folder.mark > saved or (saved > 0 and not clean)
    start = max(saved, folder.mark) + (GAP if crashed else 0)
    try:
        _keep_key(service, folder)
        _replay(service, folder, start if crashed else history)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"holds an object that cannot be read: {error}"
        fix = "restore a copy, or choose another folder"
        raise ConfigError(str(folder.file), why, fix) from error
    storage = service.storage
    storage.revision = max(storage.revision, start)
    folder.note(begun=str(storage.revision).encode(), clean=b"")
    storage.journal = Journal(folder)


def _keep_key(service: ApiService, folder: DataFolder) -> None:
    """Keep the key of ServiceAccount tokens, so that they stay valid."""
    pem = folder.fact("signing")
    if pem is None:
        folder.note(signing=service.tokens.pem)
    else:
        service.tokens.adopt(pem)


def _replay(service: ApiService, folder: DataFolder, history: int) -> None:
    """Fills the storage.

    Args:
        service: that has it.
        folder: the states.
        history: up to it changes are not shown.
    """
    storage = service.storage
    storage.floor = history
    latest = {(row.namespace, row.name): row for row in folder.rows() if row.kind == CRD_TABLE}
    for row in latest.values():
        if not row.removed:
            service.definitions.restore(orjson.loads(row.raw), row.revision)
    kinds = {kind.table: kind for kind in service.registry}
    present: dict[tuple[str, str, str], StoredState] = {}
    for row in folder.rows():
        kind = kinds.get(row.kind)
        if kind is None:
            continue  # its definition is gone, so no client can ask for it
        entry = _entry(row, kind)
        place = (row.kind, row.namespace, row.name)
        change = StorageEvent(row.revision, present.get(place), entry, row.removed)
        storage.table(row.kind).restore(change, logged=row.revision > history)
        if row.removed:
            present.pop(place, None)
        else:
            present[place] = entry


def _entry(row: StoredRow, kind: Kind) -> StoredState:
    obj = orjson.loads(row.raw)
    meta = obj["metadata"]
    return StoredState(
        key=ObjectKey(row.namespace, row.name),
        revision=row.revision,
        version=row.version,
        raw=row.raw,
        labels=meta.get("labels") or NOTHING,
        fields=kind.fields(obj) or NOTHING,
    )


# ---- all rules and plug-ins of the built-in kinds ------------------------------------------------

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def builtin_rules() -> Mapping[tuple[str, str], KindRules]:
    """The strategies by group and kind."""
    return {
        PODS.group_kind: PodRules(),
        JOBS.group_kind: JobRules(),
        NAMESPACES.group_kind: NamespaceRules(),
        NODES.group_kind: NodeRules(),
        PRIORITY_CLASSES.group_kind: PriorityClassRules(),
        SERVICES.group_kind: ServiceRules(),
        **stored_rules(),
    }


def builtin_plugins() -> tuple[AdmissionPlugin, ...]:
    """The plug-ins in the order in which they are asked."""
    return (LimitRangePlugin(), ServiceAccountPlugin(), TolerationPlugin(), PriorityPlugin())


def system_objects() -> list[Obj]:
    """The initial objects of every cluster: namespaces and PriorityClasses."""
    namespaces: list[Obj] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in SYSTEM_NAMESPACES
    ]
    return namespaces + system_priority_classes()


# --------------------------------------------------------------------------------------------------

MANAGER = "kube-apiserver"
"""Manages the fields of what the server makes for itself."""


async def new_service(
    hooks: HookCaller,
    folder: DataFolder | None = None,
    *,
    now: Callable[[], float] = time.time,
    plugins: Sequence[AdmissionPlugin] = (),
    objects: Sequence[Obj] = (),
) -> ApiService:
    """A service with the initial objects of every cluster.

    Args:
        hooks: calls webhooks for it.
        folder: with its state, which is saved there; the service closes it.
        now: its time, seconds since the epoch.
        plugins: further admission plug-ins.
        objects: initial objects besides namespaces and system PriorityClasses.

    Raises:
        ConfigError: the state in the folder is damaged.
    """
    service = ApiService(builtin_rules(), (*builtin_plugins(), *plugins), hooks, now)
    if folder is not None:
        restore(service, folder)
    for obj in (*system_objects(), *objects):
        group, _, version = obj["apiVersion"].rpartition("/")
        kind = service.registry.by_kind(group, obj["kind"])
        assert kind is not None
        with contextlib.suppress(AlreadyExists):
            options = WriteOptions(field_manager=MANAGER)
            await service.create(kind.resource(version), obj, options=options)
    if folder is not None:
        folder.merge(service.storage.revision)  # what every cluster has does not hang on a log
    return service
