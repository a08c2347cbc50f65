"""Managers: whether one leads, is allowed to, and is configured for the kinds in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kueuelib.api.batch import COMPLETE, FAILED
from kueuelib.api.kinds import (
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    KUEUE,
    LEASES,
    MUTATING_WEBHOOKS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
    WORKLOADS,
)
from kueuelib.api.meta import Obj, annotations_of, controller_of, format_time, is_true, parse_time
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.api.phrases import counted, duration
from kueuelib.app.configuration import CONFIG_FILE, CONFIG_MAP
from kueuelib.app.deployment import NAME, left_behind
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check, subject_of
from kueuelib.app.doctor.manager import (
    ACCOUNT,
    ANOTHER_WEBHOOK,
    CERTIFICATE,
    DISABLED,
    INVALID,
    LEADER,
    MISSING_KIND,
    MISSING_PERMISSION,
    NAMESPACE_STUCK,
    REFUSED,
    TERMINATING,
    install,
    is_fixed,
    lease_of,
    look,
    no_manager,
    outside,
    reconfigure,
    restart,
    runs_manager,
    start,
)
from kueuelib.app.doctor.snapshot import ADMISSION, PERMISSIONS, ClusterSnapshot, WebhookProbe
from kueuelib.app.earlier_installation import go_image
from kueuelib.app.refusers import OUR_CONFIGURATIONS, removal
from kueuelib.app.reloading import RESTART_NEEDED
from kueuelib.app.running_configuration import SKEW, mounted_configuration, written_at
from kueuelib.controllers.foreign_reservations import RESERVED_BY_ANOTHER
from kueuelib.controllers.manifests import SERVICE_ACCOUNT
from kueuelib.errors import ConfigError
from kueuelib.jobs.batch.job import BATCH_JOB
from kueuelib.jobs.pods.reading import queue_of

# The manager's configuration: whether it is valid, and whether it enables the kinds in use.


@check(INVALID, CONFIG_MAPS.kind)
def invalid(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """A configuration file with which no manager starts."""
    stored = snapshot.find(CONFIG_MAPS.kind, CONFIG_MAP, snapshot.namespace)
    if stored is None or outside(snapshot):
        return
    try:
        mounted_configuration(stored)
    except ConfigError as error:
        problem = f"no manager starts with it: {' '.join(str(error).split())}"
        fix = reconfigure(snapshot, f"correct {CONFIG_FILE}")
        yield Finding(Severity.ERROR, subject_of(CONFIG_MAPS.kind, stored), problem, fix)


@check(DISABLED, JOBS.kind)
def disabled(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Jobs with a queue name although the configuration does not enable their kind."""
    integrations = snapshot.configuration.integrations
    enabled = BATCH_JOB.name in integrations.frameworks
    if enabled or (JOBS.group, JOBS.kind) in integrations.external_kinds:
        return
    jobs = [one for one in snapshot.all(JOBS.kind) if _is_meant(one)]
    if not jobs:
        return
    suspended = any(one["spec"].get("suspend") for one in jobs)
    problem = (
        f"{counted(len(jobs), 'Job')} with a queue name ({QUEUE_LABEL}), and no manager queues "
        f"Jobs: integrations.frameworks of the configuration does not list {BATCH_JOB.name}"
    )
    fix = reconfigure(snapshot, f"add {BATCH_JOB.name} to integrations.frameworks", installs=True)
    severity = Severity.ERROR if suspended else Severity.WARNING
    yield Finding(severity, subject_of(JOBS.kind, jobs[0]), problem, fix)


def _is_meant(job: Obj) -> bool:
    """Whether a Job names a queue, has no controller and has not finished."""
    over = is_true(job, COMPLETE) or is_true(job, FAILED)
    return bool(queue_of(job)) and controller_of(job) is None and not over


# --------------------------------------------------------------------------------------------------

_OTHERWISE = "(name its configuration with --config if leaderElect is off, as in your own manager)"
_WITHOUT = "leaderElection: {leaderElect: false}"
RECENT: Final = 600.0
"""Seconds for which an Event counts."""
TAKEOVER: Final = 15.0
"""Seconds after which a new leader is expected once the last one has left."""


@check(LEADER, LEASES.kind)
def leader(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Whether a manager leads and therefore decides."""
    if not snapshot.configuration.leader_election.leader_elect:
        return
    key = snapshot.configuration.lease
    subject = Subject(LEASES.kind, key.name, key.namespace)
    lease, answers = lease_of(snapshot), any(call.by_manager for call in snapshot.calls)
    follows = tuple(_why_nobody_leads(snapshot))
    fix = look(snapshot) if answers else f"{start(snapshot)}{_token(snapshot, lease)}"
    if lease is None and answers and not {REFUSED, MISSING_PERMISSION} & {*follows}:
        problem = "it does not exist, but a manager answers: it runs without leader election"
        fix = f"kueuelib doctor --config FILE  # a file with {_WITHOUT}"
        yield Finding(Severity.HINT, subject, problem, fix, follows)
        return
    if lease is None:
        problem = f"no manager leads: it does not exist {_OTHERWISE}"
        yield Finding(Severity.ERROR, subject, problem, fix, follows)
        return
    holder = (lease.get("spec") or {}).get("holderIdentity")
    if _is_fresh(snapshot, lease) or changes_hands(snapshot):
        return
    problem = f"no manager leads: the last one has left {_OTHERWISE}"
    if holder:
        age = duration(_age(snapshot, lease))
        problem = f"no manager leads: {holder} renewed it {age} ago, for {_seconds(lease)} s"
    if answers:
        problem += "; a manager answers webhooks and tries again within a minute, and its log says "
        problem += "what it waits for"
    yield Finding(Severity.ERROR, subject, problem, fix, follows)


def _why_nobody_leads(snapshot: ClusterSnapshot) -> Iterator[str]:
    """The checks whose findings explain that no manager leads."""
    if any(call.refusal for call in snapshot.calls):
        yield REFUSED
    if is_fixed(snapshot):
        yield CERTIFICATE
    yield from (MISSING_KIND, INVALID, TERMINATING, ACCOUNT, ANOTHER_WEBHOOK)
    if any(one.resource == LEASES.plural for one in snapshot.reviews if not one.allowed):
        yield MISSING_PERMISSION


def _token(snapshot: ClusterSnapshot, lease: Obj | None) -> str:
    """What to do first if the account is newer than what the last leader wrote."""
    account = snapshot.find(SERVICE_ACCOUNTS.kind, SERVICE_ACCOUNT, snapshot.namespace)
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    made = (account or {}).get("metadata", {}).get("creationTimestamp")
    if not made or not outside(snapshot) or (renewed and parse_time(renewed) >= parse_time(made)):
        return ""
    token = f"kubectl -n {snapshot.namespace} create token {SERVICE_ACCOUNT}"
    return f"; it needs a token from after {made}: {token}"


def leads(snapshot: ClusterSnapshot) -> bool:
    """Whether a manager leads, as far as its Lease shows.

    Args:
        snapshot: the cluster.
    """
    lease = lease_of(snapshot)
    return lease is not None and _is_fresh(snapshot, lease)


def changes_hands(snapshot: ClusterSnapshot) -> bool:
    """Whether the last leader has left so recently that the next one may be about to start.

    Args:
        snapshot: the cluster.
    """
    elects, lease = snapshot.configuration.leader_election.leader_elect, lease_of(snapshot)
    if lease is None or not elects or (lease.get("spec") or {}).get("holderIdentity"):
        return False
    return _age(snapshot, lease) <= TAKEOVER


def _seconds(lease: Obj) -> int:
    return int((lease.get("spec") or {}).get("leaseDurationSeconds") or 0)


def _is_fresh(snapshot: ClusterSnapshot, lease: Obj) -> bool:
    spec = lease.get("spec") or {}
    renewed = bool(spec.get("holderIdentity") and spec.get("renewTime"))
    return renewed and _age(snapshot, lease) <= _seconds(lease)


def _age(snapshot: ClusterSnapshot, lease: Obj) -> float:
    """Seconds since the last renewal, by the clock of the API server if that is known."""
    written = written_at(lease)
    if written is None:
        return snapshot.age((lease.get("spec") or {}).get("renewTime"))
    return max(0.0, snapshot.now - written)


@check("clock-skew", LEASES.kind)
def clock_skew(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """A leader whose clock differs from that of the API server."""
    lease = lease_of(snapshot)
    written = None if lease is None else written_at(lease)
    if lease is None or written is None or not _is_fresh(snapshot, lease):
        return
    skew = parse_time(lease["spec"]["renewTime"]) - written
    if abs(skew) > SKEW:
        direction = "ahead of" if skew > 0 else "behind"
        problem = (
            f"the clock of {lease['spec']['holderIdentity']} is {duration(abs(skew))} {direction} "
            "that of the API server: times in statuses, back-offs and deadlines are wrong by that"
        )
        address = outside(snapshot)
        where = f"kubectl -n {snapshot.namespace} get pods -o wide  # synchronise its node's clock"
        fix = f"synchronise the clock of the machine that {address} names" if address else where
        yield Finding(Severity.WARNING, subject_of(LEASES.kind, lease), problem, fix)


@check("restart-needed", LEASES.kind)
def restart_needed(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Keys of the configuration file whose new values the manager uses only after a restart."""
    elects, lease = snapshot.configuration.leader_election.leader_elect, lease_of(snapshot)
    keys = "" if lease is None else annotations_of(lease).get(RESTART_NEEDED, "")
    if lease is None or not keys or (elects and not _is_fresh(snapshot, lease)):
        return
    who = f"{lease['spec']['holderIdentity']} leads" if elects else "the manager runs"
    problem = (
        f"{who} with old values of {keys}: its configuration file was changed, and these keys "
        "take effect at the next start"
    )
    subject, follows = subject_of(LEASES.kind, lease), no_manager(snapshot)
    yield Finding(Severity.WARNING, subject, problem, restart(snapshot), follows)


@check("another-leader", LEASES.kind)
def another_leader(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Managers in other namespaces, which decide about the same Workloads."""
    key = snapshot.configuration.lease
    for lease in snapshot.all(LEASES.kind):
        meta = lease["metadata"]
        if meta["name"] == key.name and meta["namespace"] != key.namespace:
            if not _is_fresh(snapshot, lease):
                continue
            holder = lease["spec"]["holderIdentity"]
            problem = f"{holder} leads with it: a second manager decides about this cluster"
            fix = _stop(snapshot, meta["namespace"], holder)
            yield Finding(Severity.ERROR, subject_of(LEASES.kind, lease), problem, fix)


def _stop(snapshot: ClusterSnapshot, namespace: str, holder: str) -> str:
    """The command that stops the manager of another namespace, as far as it can be seen."""
    running = [
        one["metadata"]["name"]
        for one in snapshot.all(DEPLOYMENTS.kind)
        if one["metadata"]["namespace"] == namespace
        and one["spec"].get("replicas", 1)
        and (go_image(one) or runs_manager(one))
    ]
    if not running:
        either = f"stop {holder}, or the manager in {snapshot.namespace}"
        return f"kubectl -n {namespace} get deployments,pods  # {either}"
    return f"kubectl -n {namespace} scale deployment {' '.join(running)} --replicas=0"


@check("another-decides", EVENTS.kind)
def another_decides(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Events of a manager without leader election about quota that it did not reserve, since the
    Lease has changed hands.
    """
    ages = [
        (snapshot.age(event.get("lastTimestamp")), event)
        for event in snapshot.all(EVENTS.kind)
        if event.get("reason") == RESERVED_BY_ANOTHER and _is_there(snapshot, event)
    ]
    age, event = min(ages, key=lambda pair: pair[0], default=(RECENT, None))
    if event is None or age > min(RECENT, _unchanged(snapshot)):
        return
    about = event["involvedObject"]
    subject = Subject(about["kind"], about["name"], about.get("namespace") or "")
    problem = (
        f"a manager without leader election found {duration(age)} ago that it has quota from "
        "another manager, or from somebody who wrote its status"
    )
    meta = event["metadata"]
    fix = (
        "run one manager, or set leaderElection.leaderElect in the configuration of all of them; "
        f"this is reported until {format_time(snapshot.now - age + RECENT)}, or until the Event is "
        f"deleted: kubectl -n {meta['namespace']} delete event {meta['name']}"
    )
    yield Finding(Severity.ERROR, subject, problem, fix)


def _unchanged(snapshot: ClusterSnapshot) -> float:
    """For how many seconds the same manager has led, or none has since the last one left."""
    lease = lease_of(snapshot)
    if lease is None or not (lease.get("spec") or {}).get("renewTime"):
        return RECENT
    if _is_fresh(snapshot, lease):
        return snapshot.age(lease["spec"].get("acquireTime")) or RECENT
    left_behind = _seconds(lease) if lease["spec"].get("holderIdentity") else 0
    return _age(snapshot, lease) - left_behind


def _is_there(snapshot: ClusterSnapshot, event: Obj) -> bool:
    """Whether the Workload that an Event is about still exists, as far as they were read."""
    about = event["involvedObject"]
    workload = snapshot.find(WORKLOADS.kind, about["name"], about.get("namespace") or "")
    return workload is not None or bool(snapshot.why_unseen(WORKLOADS.kind))


@check("another-manager", DEPLOYMENTS.kind)
def another_manager(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Deployments of the Go manager, which manages the same objects."""
    for deployment in snapshot.all(DEPLOYMENTS.kind):
        image = go_image(deployment)
        if image and deployment["spec"].get("replicas", 1):
            name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
            problem = f"it runs another manager of the same objects: {image}"
            fix = f"kubectl -n {namespace} scale deployment {name} --replicas=0"
            yield Finding(Severity.ERROR, subject_of(DEPLOYMENTS.kind, deployment), problem, fix)


@check(
    "deployment-left",
    DEPLOYMENTS.kind,
    MUTATING_WEBHOOKS.kind,
    VALIDATING_WEBHOOKS.kind,
    CRDS.kind,
)
def deployment_left(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Pods of a manager in the cluster although the webhooks lead to one outside of it."""
    deployment = snapshot.find(DEPLOYMENTS.kind, NAME, snapshot.namespace)
    address = outside(snapshot)
    if deployment is None or not address or go_image(deployment):
        return
    problem, fix = left_behind(deployment)
    if problem:
        text = f"{problem} ({address})"
        yield Finding(Severity.WARNING, subject_of(DEPLOYMENTS.kind, deployment), text, fix)


@check(ANOTHER_WEBHOOK, MUTATING_WEBHOOKS.kind, VALIDATING_WEBHOOKS.kind)
def another_webhook(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Webhook configurations of other programs for our kinds."""
    dead: dict[str, list[WebhookProbe]] = {}
    for call in snapshot.calls:
        dead.setdefault(call.webhook, []).append(call)
    for kind, configuration in snapshot.webhook_configurations():
        name = configuration["metadata"]["name"]
        named = [
            one["name"]
            for one in configuration.get("webhooks") or ()
            if _may_stop(one, dead)
            or any(KUEUE in (rule.get("apiGroups") or ()) for rule in one.get("rules") or ())
        ]
        if not named or name in OUR_CONFIGURATIONS:
            continue
        subject = Subject(kind, name)
        stopping = [one["name"] for one in configuration["webhooks"] if _may_stop(one, dead)]
        calls = [call for one in stopping for call in dead[one]]
        if calls:
            stops = ", ".join(dict.fromkeys(call.what for call in calls if call.what != ADMISSION))
            what = f"nobody can {stops}" if stops else "our objects cannot be written"
            problem = f"it does not answer, so {what}: {calls[0].error}"
            fix = removal(kind, configuration, stopping)
            yield Finding(Severity.ERROR, subject, problem, fix)
        else:
            problem = f"{', '.join(named)} is called for our kinds, too"
            fix = removal(kind, configuration, named)
            yield Finding(Severity.HINT, subject, problem, fix)


def _may_stop(webhook: Obj, dead: Mapping[str, object]) -> bool:
    """Whether it is one that did not answer, and whose silence refuses a write."""
    return webhook["name"] in dead and webhook.get("failurePolicy") != "Ignore"


# ---- the manager's account: whether it exists, and may do everything that it has to --------------


@check(ACCOUNT, SERVICE_ACCOUNTS.kind)
def account(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """The ServiceAccount of the manager, if it does not exist."""
    if snapshot.find(SERVICE_ACCOUNTS.kind, SERVICE_ACCOUNT, snapshot.namespace) is None:
        subject = Subject(SERVICE_ACCOUNTS.kind, SERVICE_ACCOUNT, snapshot.namespace)
        problem = "it does not exist, so a manager that uses it cannot reach the API server"
        runs = snapshot.why_unseen(LEASES.kind) or leads(snapshot)
        severity = Severity.HINT if runs else Severity.ERROR
        fix, address = install(snapshot), outside(snapshot)
        if address:
            token = f"kubectl -n {snapshot.namespace} create token {SERVICE_ACCOUNT}"
            fix += f"  # then a new token for the manager at {address}, if it uses one: {token}"
        yield Finding(severity, subject, problem, fix, (NAMESPACE_STUCK, MISSING_KIND))


@check(MISSING_PERMISSION, PERMISSIONS)
def denied(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Permissions that the installation grants but the API server denies, by resource."""
    lost: dict[tuple[str, str], list[str]] = {}
    for review in snapshot.reviews:
        if not review.allowed:
            resource = f"{review.resource}.{review.group}" if review.group else review.resource
            verbs = lost.setdefault((resource, review.namespace), [])
            if review.verb not in verbs:
                verbs.append(review.verb)
    subject = Subject("ServiceAccount", SERVICE_ACCOUNT, snapshot.namespace)
    fix = install(snapshot)
    for (resource, namespace), verbs in lost.items():
        where = f" in namespace {namespace}" if namespace else ""
        problem = f"it may not {', '.join(verbs)} {resource}{where}"
        yield Finding(Severity.ERROR, subject, problem, fix, (MISSING_KIND, ACCOUNT))
