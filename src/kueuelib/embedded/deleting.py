"""delete and deletecollection: preconditions, grace periods, finalizers, dependents."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kueuelib.api.meta import Obj, ObjectKey, format_time, parse_time
from kueuelib.embedded import failures
from kueuelib.embedded.admission.plugin import AdmissionAttributes, Operation
from kueuelib.embedded.admission.webhooks import Chain
from kueuelib.embedded.committing import Commits, held
from kueuelib.embedded.conversion import Converter
from kueuelib.embedded.registry.kinds import Kind, KindVersion
from kueuelib.embedded.storage import StaleWrite
from kueuelib.embedded.subresources import disrupted_status
from kueuelib.embedded.verbs import DeleteOptions, Propagation
from kueuelib.errors import Conflict

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
ATTEMPTS = 5


@attrs.frozen(eq=False)
class Deletes:
    """Deletes objects, or begins their deletion."""

    _commits: Commits
    _converter: Converter
    _chain: Chain
    _now: Callable[[], float]

    async def delete(
        self, kind: Kind, version: KindVersion, key: ObjectKey, options: DeleteOptions
    ) -> tuple[Obj, bool]:
        """Deletes an object.

        Returns:
            Its last state at the version of the request, and whether it is gone.

        Raises:
            NotFound: there is no such object.
            Conflict: a precondition does not hold.
        """
        asked = options.grace_period
        if asked is not None and asked < 0:
            asked = 1
        for _ in range(ATTEMPTS):
            entry = self._commits.present(kind, key)
            if entry is None:
                raise failures.not_found(kind, key.name)
            old = await self._converter.convert_one(kind, entry.obj(), version.name)
            self._check_preconditions(kind, key, old, options)
            request = self._request(kind, version, key, old, options)
            if options.way != "eviction":
                await self._chain.mutate(kind, request)
                await self._chain.validate(kind, request)
            obj = await self._converter.to_stored(kind, entry.obj())
            if options.way == "eviction":
                disruption = ("EvictionByEvictionAPI", "Eviction API: evicting")
                obj["status"] = disrupted_status(obj, *disruption, request.now)
            gone = self._end(kind, obj, asked, options, request)
            if options.dry_run:
                return (old if gone else obj), gone
            if not gone and obj == entry.obj():
                return old, False
            forms = {} if gone else await self._converter.ahead(kind, obj)
            try:
                if gone:
                    latest = self._commits.remove(kind, obj, entry)
                else:
                    latest = self._commits.put(kind, key, obj, entry)
            except StaleWrite:
                continue
            self._converter.keep(kind, latest, forms)
            return await self._converter.convert_one(kind, obj, version.name), gone
        raise failures.conflict(kind, key.name)

    def _end(
        self,
        kind: Kind,
        obj: Obj,
        asked: int | None,
        options: DeleteOptions,
        request: AdmissionAttributes,
    ) -> bool:
        """Changes the object for its deletion; returns whether it can be removed at once."""
        meta = obj["metadata"]
        now = request.now
        finalizers = self._finalizers(kind, meta, options.propagation)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        if not (kind.rules.graceful or held(kind, obj)):
            return True
        grace = kind.rules.grace_period(obj, asked)
        if meta.get("deletionTimestamp"):
            before = meta.get("deletionGracePeriodSeconds") or 0
            if before and grace < before and (asked is not None or grace == 0):
                begun = parse_time(meta["deletionTimestamp"]) - before
                meta["deletionTimestamp"] = format_time(max(begun + grace, 0))
                meta["deletionGracePeriodSeconds"] = grace
        else:
            meta["deletionTimestamp"] = format_time(now + grace)
            if finalizers or kind.rules.graceful:
                meta["deletionGracePeriodSeconds"] = grace
            if "generation" in meta:
                meta["generation"] += 1
            kind.rules.prepare_delete(obj, request)
        return not meta.get("deletionGracePeriodSeconds") and not held(kind, obj)

    @staticmethod
    def _finalizers(kind: Kind, meta: Obj, asked: Propagation | None) -> list[str]:
        finalizers = list(meta.get("finalizers") or ())
        if kind.propagation == "":
            return finalizers
        if asked is None:
            if ORPHAN in finalizers or FOREGROUND in finalizers:
                return finalizers
            asked = Propagation(kind.propagation) if kind.propagation else Propagation.BACKGROUND
        rest = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
        if asked is Propagation.ORPHAN:
            return [*rest, ORPHAN]
        if asked is Propagation.FOREGROUND:
            return [*rest, FOREGROUND]
        return rest

    @staticmethod
    def _check_preconditions(kind: Kind, key: ObjectKey, obj: Obj, options: DeleteOptions) -> None:
        meta = obj["metadata"]
        if options.uid is not None and options.uid != meta["uid"]:
            raise _unmet(
                kind,
                key.name,
                f"the UID in the precondition ({options.uid}) does not match the UID in record "
                f"({meta['uid']}). The object might have been deleted and then recreated",
            )
        wanted = options.resource_version
        if wanted is not None and wanted != meta["resourceVersion"]:
            raise _unmet(
                kind,
                key.name,
                f"the ResourceVersion in the precondition ({wanted}) does not match the "
                f"ResourceVersion in record ({meta['resourceVersion']}). "
                "The object might have been modified",
            )

    def _request(
        self, kind: Kind, version: KindVersion, key: ObjectKey, old: Obj, options: DeleteOptions
    ) -> AdmissionAttributes:
        given = {
            "gracePeriodSeconds": options.grace_period,
            "propagationPolicy": options.propagation,
            "dryRun": ["All"] if options.dry_run else None,
        }
        described = {name: value for name, value in given.items() if value is not None}
        return AdmissionAttributes(
            operation=Operation.DELETE,
            resource=kind.resource(version.name),
            subresource="",
            key=ObjectKey(key.namespace, "") if options.way == "collection" else key,
            obj=None,
            old=old,
            caller=options.caller,
            dry_run=options.dry_run,
            now=self._now(),
            options={"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", **described},
        )


def _unmet(kind: Kind, name: str, why: str) -> Conflict:
    """The error for a failed precondition; unlike others, it names the kind."""
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return Conflict(
        f'Operation cannot be fulfilled on {qualified} "{name}": {why}',
        details={**failures.details(kind, name), "kind": kind.kind},
    )
