"""Managers: whether one leads, is allowed to, and is configured for the kinds in use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kueuelib.api.batch import has_ended
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
from kueuelib.api.meta import Obj, annotations_of, controller_of, format_time, parse_time
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.api.phrases import counted, duration
from kueuelib.app.configuration import CONFIG_FILE, CONFIG_MAP
from kueuelib.app.deployment import NAME, left_behind
from kueuelib.app.doctor.calls import stops_writes
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
    address_of,
    install,
    is_fixed,
    lease_of,
    look,
    new_token,
    no_manager,
    outside,
    reconfigure,
    restart,
    runs_manager,
    start,
)
from kueuelib.app.doctor.snapshot import ADMISSION, PERMISSIONS, ClusterSnapshot, WebhookProbe
from kueuelib.app.earlier_installation import go_image
from kueuelib.app.refusers import OUR_CONFIGURATIONS, removals
from kueuelib.app.reloading import RESTART_NEEDED
from kueuelib.app.running_configuration import (
    OTHERWISE,
    SKEW,
    is_held,
    is_released,
    lasts_for,
    longest_pause,
    mounted_configuration,
    renewed_ago,
    written_at,
)
from kueuelib.controllers.foreign_reservations import RESERVED_BY_ANOTHER
from kueuelib.controllers.manifests import SERVICE_ACCOUNT
from kueuelib.errors import ConfigError
from kueuelib.jobs.batch import BATCH_JOB
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
    return bool(queue_of(job)) and controller_of(job) is None and not has_ended(job)


# --------------------------------------------------------------------------------------------------

_CACHED: Final = 15.0
"""Seconds for which an API server may accept a token after its account is gone."""
_WITHOUT = "leaderElection: {leaderElect: false}"
BEGINNING: Final = 30.0
"""Seconds that a new leader may take until all statuses are right again."""
RECENT: Final = 600.0
"""Seconds for which an Event counts."""


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
        problem = "it does not exist, but a manager answers: it runs without leader election, or "
        problem += "creates it again within a minute"
        fix = f"kueuelib doctor --config FILE  # a file with {_WITHOUT}"
        yield Finding(Severity.HINT, subject, problem, fix, follows)
        return
    if lease is None:
        problem = f"no manager leads: it does not exist {OTHERWISE}"
        yield Finding(Severity.ERROR, subject, problem, fix, follows)
        return
    holder = (lease.get("spec") or {}).get("holderIdentity")
    if leads(snapshot) or changes_hands(snapshot) or is_held(lease, snapshot.now):
        yield from _held_for_long(snapshot, lease)
        return
    problem = f"no manager leads: the last one has left {OTHERWISE}"
    if holder:
        age = duration(renewed_ago(lease, snapshot.now))
        problem = f"no manager leads: {holder} renewed it {age} ago, for {lasts_for(lease)} s"
    if answers:
        problem += "; a manager answers webhooks and tries again within a minute, and its log says "
        problem += "what it waits for"
    yield Finding(Severity.ERROR, subject, problem, fix, follows)


def _held_for_long(snapshot: ClusterSnapshot, lease: Obj) -> Iterator[Finding]:
    """A Lease that lasts far longer than those of the managers: it may be nobody's."""
    usual, lasts = snapshot.configuration.leader_election, lasts_for(lease)
    if lasts <= longest_pause(usual) or not (lease.get("spec") or {}).get("holderIdentity"):
        return
    holder, age = lease["spec"]["holderIdentity"], renewed_ago(lease, snapshot.now)
    severity, until = Severity.WARNING, format_time(snapshot.now - age + lasts)
    problem = (
        f"{holder} holds it for {lasts} s, and by the configuration it lasts "
        f"{usual.lease_duration:g} s: if {holder} no longer runs, no manager leads before {until}"
    )
    if not leads(snapshot):
        severity = Severity.ERROR
        problem = (
            f"{holder} holds it, and has not renewed it for {duration(age)}, although it lasts "
            f"{lasts} s: no manager leads before {until}, or until it is deleted"
        )
    key = snapshot.configuration.lease
    fix = f"kubectl -n {key.namespace} delete lease {key.name}  # if {holder} no longer runs"
    yield Finding(severity, subject_of(LEASES.kind, lease), problem, fix)


def _why_nobody_leads(snapshot: ClusterSnapshot) -> Iterator[str]:
    """The checks whose findings explain that no manager leads."""
    if any(call.refusal for call in snapshot.calls):
        yield REFUSED
    if is_fixed(snapshot):
        yield CERTIFICATE
    yield from (MISSING_KIND, INVALID, TERMINATING, ACCOUNT, ANOTHER_WEBHOOK)
    if any(not one.allowed for one in snapshot.reviews):
        yield MISSING_PERMISSION  # without one of its kinds, a manager gives up the Lease


def _token(snapshot: ClusterSnapshot, lease: Obj | None) -> str:
    """What to do first if the account is newer than what the last leader wrote."""
    account = snapshot.find(SERVICE_ACCOUNTS.kind, SERVICE_ACCOUNT, snapshot.namespace)
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    made = (account or {}).get("metadata", {}).get("creationTimestamp")
    if not made or not outside(snapshot):
        return ""
    if renewed and parse_time(renewed) > parse_time(made) + _CACHED:
        return ""
    return f"; it needs a token created after {made}: {new_token(snapshot)}"


def leads(snapshot: ClusterSnapshot) -> bool:
    """Whether a manager leads, as far as its Lease shows.

    Args:
        snapshot: the cluster.
    """
    lease, election = lease_of(snapshot), snapshot.configuration.leader_election
    return lease is not None and is_held(lease, snapshot.now, election)


def changes_hands(snapshot: ClusterSnapshot) -> bool:
    """Whether the last leader has left so recently that the next one may be about to start.

    Args:
        snapshot: the cluster.
    """
    elects, lease = snapshot.configuration.leader_election.leader_elect, lease_of(snapshot)
    return lease is not None and elects and is_released(lease, snapshot.now)


def has_just_begun(snapshot: ClusterSnapshot) -> bool:
    """Whether the leader leads so recently that it may still be reading, after an outage as well.

    Args:
        snapshot: the cluster.
    """
    return leads(snapshot) and _unchanged(snapshot) < BEGINNING


@check("clock-skew", LEASES.kind)
def clock_skew(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """A leader whose clock differs from that of the API server."""
    lease = lease_of(snapshot)
    written = None if lease is None else written_at(lease)
    if lease is None or written is None or not leads(snapshot):
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
    if lease is None or not keys or (elects and not leads(snapshot)):
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
            if not is_held(lease, snapshot.now, snapshot.configuration.leader_election):
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
    if leads(snapshot):
        return snapshot.age(lease["spec"].get("acquireTime")) or RECENT
    left_behind = lasts_for(lease) if lease["spec"].get("holderIdentity") else 0
    return renewed_ago(lease, snapshot.now) - left_behind


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
    theirs = [
        (kind, one)
        for kind, one in snapshot.webhook_configurations()
        if one["metadata"]["name"] not in OUR_CONFIGURATIONS
    ]
    reported: list[Obj] = []
    for kind, configuration in theirs:
        stopping = [one for one in _webhooks(configuration) if _may_stop(one, dead)]
        if not stopping or configuration in reported:
            continue
        servers = {_server(one, dead[one["name"]]) for one in stopping} - {""}
        silent: list[tuple[str, Obj, list[str]]] = []
        for other_kind, other in theirs:
            names = [
                one["name"]
                for one in _webhooks(other)
                if (_may_stop(one, dead) and other is configuration)
                or (address_of(one.get("clientConfig") or {}) in servers and stops_writes(one))
            ]
            if names:
                silent.append((other_kind, other, names))
                reported.append(other)
        names = [name for _, _, each in silent for name in each]
        calls = [call for one in names for call in dead.get(one, ())]
        stops = ", ".join(dict.fromkeys(call.what for call in calls if call.what != ADMISSION))
        what = f"nobody can {stops}" if stops else "our objects cannot be written"
        problem = f"it does not answer, so {what}: {calls[0].error}"
        more = [name for name in names if name not in dead]
        problem += f"; the same server has to answer for {', '.join(more)}" if more else ""
        subject = subject_of(kind, configuration)
        yield Finding(Severity.ERROR, subject, problem, removals(silent))
    for kind, configuration in theirs:
        named = [
            one["name"]
            for one in _webhooks(configuration)
            if any(KUEUE in (rule.get("apiGroups") or ()) for rule in one.get("rules") or ())
        ]
        if named and configuration not in reported:
            problem = f"{', '.join(named)} is called for our kinds, too"
            fix = removals([(kind, configuration, named)])
            yield Finding(Severity.HINT, subject_of(kind, configuration), problem, fix)


def _webhooks(configuration: Obj) -> Sequence[Obj]:
    return configuration.get("webhooks") or ()


def _server(webhook: Obj, calls: Sequence[WebhookProbe]) -> str:
    """Where a webhook leads, if nothing can be reached there; empty otherwise."""
    unreached = any(_UNREACHED.search(call.error) for call in calls)
    return address_of(webhook.get("clientConfig") or {}) if unreached else ""


def _may_stop(webhook: Obj, dead: Mapping[str, object]) -> bool:
    """Whether it is one that did not answer, and whose silence refuses a write."""
    return webhook["name"] in dead and webhook.get("failurePolicy") != "Ignore"


_UNREACHED: Final = re.compile(
    'no endpoints|connection refused|service "[^"]*" not found|no such host|x509|timeout|'
    "deadline exceeded|EOF"
)
"""What the API server says if it does not reach a server, whatever the path."""

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
            then = f"a new token for the manager at {address}, if it uses one"
            fix += f"  # then {then}: {new_token(snapshot)}"
        yield Finding(severity, subject, problem, fix, (NAMESPACE_STUCK, MISSING_KIND))


@check(MISSING_PERMISSION, PERMISSIONS)
def denied(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Permissions that the installation grants but the API server denies, by resource."""
    lost: dict[tuple[str, str, str], list[str]] = {}
    for review in snapshot.reviews:
        if not review.allowed:
            resource = f"{review.resource}.{review.group}" if review.group else review.resource
            verbs = lost.setdefault((resource, review.namespace, review.binding), [])
            if review.verb not in verbs:
                verbs.append(review.verb)
    subject = Subject("ServiceAccount", SERVICE_ACCOUNT, snapshot.namespace)
    fix = install(snapshot)
    for (resource, namespace, binding), verbs in lost.items():
        where = f" in namespace {namespace}" if namespace else ""
        problem = f"it may not {', '.join(verbs)} {resource}{where}: "
        problem += f"{binding} has to grant it to {subject}"
        yield Finding(Severity.ERROR, subject, problem, fix, (MISSING_KIND, ACCOUNT))
