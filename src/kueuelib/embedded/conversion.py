"""Converts objects to API versions other than the stored one.

A custom resource with several versions is converted by its webhook (`spec.conversion`), many
objects per call; with the strategy `None` only the version is replaced. Afterwards the schema of
the new version prunes and defaults. The form of a state at another version is cached
next to it.

A Kubernetes API server keeps a watch cache for each version of a kind, with objects that were
converted when they were written. So lists and watches continue while a conversion webhook does not
answer. The same holds here for every version that is listed or watched: its form of a new state is
made just before the state is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kueuelib.api.meta import Obj
from kueuelib.embedded.decoding import copy_json, settle
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.embedded.storage import StoredState, encoded
from kueuelib.errors import KueuelibError, ServerError

BATCH = 500
REVIEW_VERSIONS = ("v1", "v1beta1")

ANSWER_SECONDS = 30.0
AHEAD_SECONDS = 1.0
"""The longest time, in seconds, that a write waits for a form that only readers need."""
HANG_UP_SECONDS = 0.02
"""Seconds until the request of a webhook that has just died ends, because it may be the writer
itself.
"""
READER_SECONDS = 600.0
"""Seconds after the last list or batch of a watch for which a version counts as read."""


class HookFailed(KueuelibError):
    """A webhook did not give a usable answer."""


class HookCaller(Protocol):
    """Posts a review to a webhook."""

    async def call(self, client: Any, body: Obj, *, seconds: float) -> Obj:
        """The decoded answer.

        Args:
            client: the `clientConfig` of the webhook.
            body: the review.
            seconds: the time limit.

        Raises:
            HookFailed: there was no answer, or it is unreadable.
        """


class Converter:
    """Returns objects at the requested version."""

    def __init__(self, hooks: HookCaller) -> None:
        self._hooks = hooks
        self._read: dict[str, dict[str, float]] = {}
        """When each version of a kind, by table, was last listed or watched."""

    async def convert(
        self, kind: Kind, objs: Sequence[Obj], version: str, seconds: float = ANSWER_SECONDS
    ) -> list[Obj]:
        """The objects at a version; the arguments are not changed.

        Args:
            kind: their kind.
            objs: at any versions.
            version: the name of the requested version.
            seconds: the time limit of the webhook, per batch.

        Raises:
            ServerError: the conversion webhook failed.
        """
        target = kind.api_version(version)
        if kind.twin is not None:
            return [obj if obj["apiVersion"] == target else kind.twin.out(obj) for obj in objs]
        pending = [i for i, obj in enumerate(objs) if obj["apiVersion"] != target]
        at_version = list(objs)
        if pending and self._by_webhook(kind):
            for start in range(0, len(pending), BATCH):
                part = pending[start : start + BATCH]
                converted = await self._ask(kind, [objs[i] for i in part], target, seconds)
                for i, obj in zip(part, converted, strict=True):
                    at_version[i] = obj
        else:
            for i in pending:
                at_version[i] = copy_json({**objs[i], "apiVersion": target})
        for i in pending:
            settle(kind.versions[version], at_version[i])
        return at_version

    async def convert_one(self, kind: Kind, obj: Obj, version: str) -> Obj:
        """One object at a version."""
        if kind.twin is None and obj["apiVersion"].rpartition("/")[2] == version:
            return obj
        return (await self.convert(kind, [obj], version))[0]

    async def to_stored(self, kind: Kind, obj: Obj) -> Obj:
        """An object at the stored version."""
        if kind.twin is not None:
            return kind.twin.into(obj)
        return await self.convert_one(kind, obj, kind.storage)

    async def views(self, kind: Kind, entries: Sequence[StoredState], version: str) -> list[bytes]:
        """Stored states as JSON at a version, in the given order, for a list or a watch."""
        if version != kind.storage and self._by_webhook(kind):
            now = asyncio.get_running_loop().time()
            self._read.setdefault(kind.table, {})[version] = now
        return await self._views(kind, entries, version)

    async def ahead(self, kind: Kind, stored: Obj) -> Mapping[str, Obj]:
        """A state that is about to be stored, at every other version that is being read.

        A version whose webhook fails is left out; lists at that version then fail.
        """
        by_version: dict[str, Obj] = {}
        for version in self._readers(kind):
            try:
                (by_version[version],) = await self.convert(kind, [stored], version, AHEAD_SECONDS)
            except ServerError:
                await asyncio.sleep(HANG_UP_SECONDS)
        return by_version

    async def renew(self, kind: Kind, entries: Sequence[StoredState]) -> None:
        """Renews all forms that are being read, after a change of the definition.

        A version whose webhook fails is left out; lists at that version then fail.
        """
        for version in self._readers(kind):
            with contextlib.suppress(ServerError):
                await self._views(kind, entries, version)

    def _readers(self, kind: Kind) -> list[str]:
        """The versions, besides the stored one, that were read recently."""
        read = self._read.get(kind.table)
        if not read:
            return []
        since = asyncio.get_running_loop().time() - READER_SECONDS
        for version, last in list(read.items()):
            if last < since or version not in kind.versions or version == kind.storage:
                del read[version]
        return list(read)

    @staticmethod
    def keep(kind: Kind, entry: StoredState, forms: Mapping[str, Obj]) -> None:
        """Caches the results of `ahead` next to the stored state."""
        if not forms:
            return
        views = dict(entry.views or {})
        for version, obj in forms.items():
            meta = {**obj["metadata"], "resourceVersion": str(entry.revision)}
            views[_mark(kind, version)] = encoded({**obj, "metadata": meta})
        entry.views = views

    async def _views(self, kind: Kind, entries: Sequence[StoredState], version: str) -> list[bytes]:
        mark = _mark(kind, version)
        missing = [
            entry
            for entry in entries
            if not _as_stored(kind, entry, version)
            and (entry.views is None or mark not in entry.views)
        ]
        if missing:
            objs = await self.convert(kind, [entry.obj() for entry in missing], version)
            for entry, obj in zip(missing, objs, strict=True):
                if entry.version == version and kind.twin is None:
                    settle(kind.versions[version], obj)
                kept = {
                    name: raw
                    for name, raw in (entry.views or {}).items()
                    if name.endswith(f"@{kind.epoch}")
                }
                entry.views = {**kept, mark: encoded(obj)}
        return [
            entry.raw if _as_stored(kind, entry, version) else (entry.views or {})[mark]
            for entry in entries
        ]

    async def view(self, kind: Kind, entry: StoredState, version: str) -> bytes:
        """One stored state as JSON at a version, for a get: the webhook is called every time."""
        if _as_stored(kind, entry, version):
            return entry.raw
        if entry.version != version and self._by_webhook(kind):
            return encoded(await self.convert_one(kind, entry.obj(), version))
        return (await self._views(kind, [entry], version))[0]

    @staticmethod
    def _by_webhook(kind: Kind) -> bool:
        return kind.conversion is not None and kind.conversion.get("strategy") == "Webhook"

    async def _ask(self, kind: Kind, objs: list[Obj], target: str, seconds: float) -> list[Obj]:
        assert kind.conversion is not None
        hook = kind.conversion.get("webhook") or {}
        accepted = hook.get("conversionReviewVersions") or REVIEW_VERSIONS
        review = next((known for known in REVIEW_VERSIONS if known in accepted), None)
        source = objs[0]["apiVersion"]
        failed = f"conversion webhook for {source}, Kind={kind.kind} failed: "
        if review is None:
            raise ServerError(f"{failed}conversionReviewVersions lacks {REVIEW_VERSIONS[0]}")
        uid = str(uuid.uuid4())
        body = {
            "apiVersion": f"apiextensions.k8s.io/{review}",
            "kind": "ConversionReview",
            "request": {"uid": uid, "desiredAPIVersion": target, "objects": objs},
        }
        try:
            answer = await self._hooks.call(hook.get("clientConfig") or {}, body, seconds=seconds)
        except HookFailed as error:
            raise ServerError(failed + str(error)) from error
        return _converted(answer, uid, objs, target, failed)


def _converted(answer: Obj, uid: str, objs: list[Obj], target: str, failed: str) -> list[Obj]:
    response = answer.get("response")
    if not isinstance(response, dict) or response.get("uid") != uid:
        raise ServerError(failed + "the response is missing or answers another request")
    result = response.get("result") or {}
    if result.get("status") != "Success":
        raise ServerError(failed + str(result.get("message") or "no reason given"))
    converted = response.get("convertedObjects")
    if not isinstance(converted, list) or len(converted) != len(objs):
        count = len(converted) if isinstance(converted, list) else 0
        raise ServerError(failed + f"expected {len(objs)} converted objects, got {count}")
    for old, new in zip(objs, converted, strict=True):
        head = {"apiVersion": target, "kind": old["kind"]}
        if not isinstance(new, dict) or not head.items() <= new.items():
            raise ServerError(failed + f"a converted object is not a {target} {old['kind']}")
        _check_identity(old, new, failed)
        _keep_identity(old, new)
    return converted


def _check_identity(old: Obj, new: Obj, failed: str) -> None:
    """Check that a converted object is still the same object.

    Raises:
        ServerError: it has another name, namespace or UID.
    """
    before, after = old["metadata"], new.get("metadata") or {}
    for key, what in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if (before.get(key) or "") != (after.get(key) or ""):
            raise ServerError(
                f"{failed}invalid metadata of object: metadata.{key}: Invalid value: "
                f'"{after.get(key) or ""}": must have the same {what}: '
                f'"{before.get(key) or ""}"'
            )


def _keep_identity(old: Obj, new: Obj) -> None:
    """Restore the metadata after a webhook, which may only change labels and annotations."""
    kept = dict(old["metadata"])
    for part in ("labels", "annotations"):
        kept.pop(part, None)
        given = (new.get("metadata") or {}).get(part)
        if given:
            kept[part] = given
    new["metadata"] = kept


def _mark(kind: Kind, version: str) -> str:
    return f"{version if kind.twin is None else kind.group}@{kind.epoch}"


def _as_stored(kind: Kind, entry: StoredState, version: str) -> bool:
    return kind.twin is None and entry.version == version and entry.revision >= kind.since
