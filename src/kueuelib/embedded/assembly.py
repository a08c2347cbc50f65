"""Assembles a service: kinds, their rules, plug-ins, and the initial objects of every cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import AdmissionPlugin
from kueuelib.embedded.builtins.rules_by_kind import builtin_plugins, builtin_rules, system_objects
from kueuelib.embedded.conversion import HookCaller
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import AlreadyExists

if TYPE_CHECKING:
    from kueuelib.embedded.storage.folder import DataFolder

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
        from kueuelib.embedded.restoring import restore

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
