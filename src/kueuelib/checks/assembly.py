"""Makes controllers of checks and hands them to a manager."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kueuelib.api import kinds
from kueuelib.api.kinds import V1BETA2
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import known_version
from kueuelib.checks.definition import Check
from kueuelib.checks.parameters import ActivityReconciler, ParameterSource
from kueuelib.checks.reconciler import BY_CHECK, CheckReconciler, entry_key
from kueuelib.checks.release import FIRST_PAUSE, LAST_PAUSE, ReleaseReconciler
from kueuelib.errors import ConfigError
from kueuelib.machinery.backoff import ItemExponential
from kueuelib.machinery.store import Delta
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import Controller
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.workload import states


def setup(
    manager: Manager,
    cache: Cache,
    client: Client,
    recorder: EventRecorder,
    checks: Sequence[Check],
    *,
    version: str = V1BETA2,
    telemetry: Telemetry | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Adds checks to a manager. They run on the leader only, each with its own queue and workers.

    Args:
        manager: runs the parts. Add the cache and the recorder to it yourself.
        cache: the cache whose informers all parts share.
        client: sends the writes; `current().client` gives it to the checks.
        recorder: records events about Workloads.
        checks: the checks to run.
        version: the version of the queueing API to use; the API server must serve it.
        telemetry: where the controllers report.
        clock: the time.

    Raises:
        ConfigError: one is not a check; two have the same controller name, here or in an earlier
            call for the manager; there is no such version.
    """
    version = known_version(version)
    if not checks:
        return
    given: Sequence[object] = checks
    for each in given:
        if not isinstance(each, Check):
            shown, fix = getattr(each, "__name__", repr(each)), '@check("example.com/name")'
            raise ConfigError(f"checks.setup: {shown}", "is not a check", f"decorate it with {fix}")
    names = [check.controller_name for check in checks]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"check {name!r}", "exists more than once", "give each a controller name"
            )
    for name in names:
        manager.once(f"check {name!r}", "give each a controller name")
    client = client.guarded(manager.require_leadership)  # a paused leader may wake up too late
    workloads = cache.informer(kinds.WORKLOADS.at(version))
    admission_checks = cache.informer(kinds.ADMISSION_CHECKS.at(version))
    workloads.add_index(BY_CHECK, checks_of)
    for check in checks:
        _add(
            manager,
            client,
            recorder,
            check,
            workloads,
            admission_checks,
            telemetry=telemetry,
            clock=clock,
        )


def _add(
    manager: Manager,
    client: Client,
    recorder: EventRecorder,
    check: Check,
    workloads: Informer,
    admission_checks: Informer,
    *,
    telemetry: Telemetry | None,
    clock: Clock,
) -> None:
    parameters = ParameterSource(client, check.parameters, clock=clock)
    reconciler = CheckReconciler(
        check, client, workloads, admission_checks, parameters, recorder, clock=clock
    )

    def entries(delta: Delta[Obj]) -> Iterator[ObjectKey]:
        for wl in (delta.old, delta.new):
            if wl is not None:
                yield from reconciler.entries(wl)

    def listed(check_name: str) -> Iterator[ObjectKey]:
        for key in workloads.store.keys_by_index(BY_CHECK, check_name):
            yield entry_key(key, check_name)

    asking = (
        Controller(
            f"check-{check.controller_name}",
            reconciler,
            check.concurrency,
            clock=clock,
            telemetry=telemetry,
        )
        .watches(workloads, entries)
        .watches(admission_checks, lambda delta: listed(delta.key.name))
    )
    reconciler.enqueue_with(asking.enqueue)
    activity = Controller(
        f"check-active-{check.controller_name}",
        ActivityReconciler(
            client, admission_checks, check.controller_name, parameters, clock=clock
        ),
        clock=clock,
        telemetry=telemetry,
    ).for_(admission_checks)

    def changed(key: ObjectKey) -> None:
        for name, raw_check in reconciler.mine().items():
            ref = (raw_check["spec"].get("parameters") or {}).get("name")
            if key.name in ("", ref):
                activity.enqueue(ObjectKey("", name))
                asking.enqueue(*listed(name))

    if check.owned is not None:

        def owner_changed(key: ObjectKey) -> None:
            reconciler.ask_again(key)
            asking.enqueue(*(entry_key(key, name) for name in reconciler.mine()))

        check.owned.attach(client, workloads, reconciler.mine, owner_changed, clock=clock)
        admission_checks.add_handler(check.owned.heard)
        manager.add(Group.ELECTED, check.owned, f"objects of check {check.controller_name}")
    if check.release is not None:
        releasing = Controller(
            f"release-{check.controller_name}",
            ReleaseReconciler(
                check,
                client,
                workloads,
                reconciler.entries,
                reconciler.called,
                reconciler.evaluator,
                recorder,
                clock=clock,
            ),
            check.concurrency,
            limiter=ItemExponential(FIRST_PAUSE, LAST_PAUSE),
            clock=clock,
            telemetry=telemetry,
        ).for_(workloads)
        releasing.watches(
            admission_checks,
            lambda delta: workloads.store.keys_by_index(BY_CHECK, delta.key.name),
        )
        manager.add(Group.ELECTED, releasing, f"release of check {check.controller_name}")
    parameters.subscribe(changed)
    name = check.controller_name
    manager.add(Group.ELECTED, parameters, f"parameters of check {name}")
    manager.add(Group.ELECTED, activity, f"activity of check {name}")
    manager.add(Group.ELECTED, asking, f"check {name}")


def checks_of(wl: Obj) -> Iterator[str]:
    """The names of the AdmissionChecks that a Workload lists."""
    for entry in states.check_states(wl):
        yield entry["name"]
