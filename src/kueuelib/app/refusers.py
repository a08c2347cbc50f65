"""Who refuses a write: the webhook, policy or quota behind a message; whether it still does."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from kueuelib.api.kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, WORKLOADS
from kueuelib.api.meta import Obj, is_true, parse_time
from kueuelib.api.phrases import duration
from kueuelib.controllers.applier import ADMISSION_FAILED, PREEMPTION_FAILED
from kueuelib.controllers.webhooks import MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION
from kueuelib.errors import ApiError, TransportError
from kueuelib.jobs.reconcile.refusals import REFUSED, STATUS, WORKLOAD
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR
from kueuelib.runtime.client import Client
from kueuelib.workload import states

_QUOTA: Final = re.compile("(?:exceeded|failed) quota: ([^,:]+)[,:]")
_SECURITY: Final = re.compile('violates PodSecurity "([^"]+)"')
_CLASS: Final = re.compile('RuntimeClass "([^"]+)" not found')
_PRIORITY: Final = re.compile("no PriorityClass with name ([^ ]+) was found")
_FIXED: Final = re.compile('Secret "([^"]+)" is invalid: data: Forbidden: field is immutable')
_DENIED: Final = re.compile('User "[^"]+" cannot [a-z]+ resource ')
OUR_CONFIGURATIONS: Final = (MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION)
_DEAD: Final = re.compile('failed calling webhook "([^"]+)"')
_REFUSING: Final = re.compile('admission webhook "([^"]+)" denied the request')
_REFUSALS: Final = ("denied the request", "denied request", "forbidden")
_POLICY: Final = re.compile(
    "(Validating|Mutating)AdmissionPolicy '([^']+)' with binding '([^']+)' denied request"
)


def dead_webhook(message: str) -> str:
    """The name of the webhook that did not answer; empty if the message is about something else.

    Args:
        message: of the API server.
    """
    match = _DEAD.search(message)
    return match[1] if match else ""


def named_webhook(message: str) -> str:
    """The name of the webhook that refuses, or did not answer; empty if a message names none.

    Args:
        message: of the API server.
    """
    match = _DEAD.search(message) or _REFUSING.search(message)
    return match[1] if match else ""


def latest(events: Iterable[Obj]) -> Obj | None:
    """The Event that was written last; None without one.

    Args:
        events: the raw ones.
    """
    timed = (one for one in events if one.get("lastTimestamp"))
    return max(timed, key=lambda one: parse_time(one["lastTimestamp"]), default=None)


def ago(event: Obj, now: float) -> str:
    """How long ago an Event was written last.

    Args:
        event: the raw one.
        now: seconds since the epoch.
    """
    return f"{duration(max(0.0, now - parse_time(event['lastTimestamp'])))} ago"


def said(event: Obj, now: float) -> str:
    """What the manager said in an Event; see `ago`."""
    return f"{ago(event, now)} the manager said {event['reason']}: {event['message']}"


def removals(webhooks: Iterable[tuple[str, Obj, Collection[str]]]) -> str:
    """The command that removes some webhooks and leaves the others of their configurations.

    Args:
        webhooks: the raw configurations, each after its kind and before the names of its webhooks.
    """
    commands, notes = [], []
    for kind, configuration, named in webhooks:
        name, known = configuration["metadata"]["name"], configuration["webhooks"]
        gone = ", ".join(one["name"] for one in known if one["name"] in named)
        whole = all(one["name"] in named for one in known)
        commands.append(f"kubectl {'delete' if whole else 'edit'} {kind.lower()} {name}")
        notes.append("" if whole else f"remove {gone}, ")
    needed = "it" if len(notes) == 1 and not notes[0] else "them"
    return f"{' && '.join(commands)}  # {''.join(notes)}if nobody needs {needed}"


def is_refusal(message: str) -> bool:
    """Whether a message about a failed write names a quota, a policy, a webhook or permissions.

    Args:
        message: of a controller of Kubernetes, or of the API server.
    """
    return bool(_DEAD.search(message)) or any(words in message for words in _REFUSALS)


def lacks_permission(message: str) -> bool:
    """Whether a message says that the writer may not write such objects.

    Args:
        message: of the API server.
    """
    return bool(_DENIED.search(message))


def remedy(
    message: str,
    configurations: Iterable[tuple[str, Obj]],
    namespace: str,
    otherwise: str = "submit what it permits",
) -> str:
    """What to do about what refuses a write; empty if the message does not lead to it.

    Args:
        message: of the API server.
        configurations: the webhook configurations, each after its kind; ours are left alone.
        namespace: of the object that is written.
        otherwise: what may be done instead of changing what refuses it.
    """
    quota = _QUOTA.search(message)
    if quota:
        return (
            f"kubectl -n {namespace} describe resourcequota {quota[1]}  # raise spec.hard of what "
            "the message names, or remove what uses it"
        )
    level, absent = _SECURITY.search(message), _CLASS.search(message)
    if level:
        return (
            f"kubectl get namespace {namespace} -o yaml  # pod-security.kubernetes.io/enforce asks "
            f"for {level[1]}: {otherwise}, or change that label"
        )
    if absent:
        return f"kubectl get runtimeclasses  # create {absent[1]}, or {otherwise}"
    priority = _PRIORITY.search(message)
    if priority:
        return (
            f"kubectl create priorityclass {priority[1]} --value=VALUE  # its former value; or "
            f"{otherwise}"
        )
    fixed = _FIXED.search(message)
    if fixed:
        return f"kubectl -n {namespace} delete secret {fixed[1]}  # it is immutable; then try again"
    if lacks_permission(message):
        return (
            "kueuelib doctor  # prints the command that grants what the manager needs; with --self "
            "and the manager's kubeconfig if it does not run as its ServiceAccount"
        )
    policy = _POLICY.search(message)
    if policy:
        kind = f"{policy[1].lower()}admissionpolicy"
        return (
            f"kubectl get {kind} {policy[2]} -o yaml  # {kind}binding {policy[3]} applies it: "
            f"{otherwise}, or change the policy"
        )
    dead, wanted = dead_webhook(message), named_webhook(message)
    for kind, configuration in configurations:
        name = configuration["metadata"]["name"]
        if name in OUR_CONFIGURATIONS or wanted not in webhook_names(configuration):
            continue
        if dead:
            return removals([(kind, configuration, [dead])])
        return (
            f"kubectl get {kind.lower()} {name} -o yaml  # its webhook {wanted} refuses: "
            f"{otherwise}, or change its rules"
        )
    return ""


def webhook_names(configuration: Obj) -> Iterator[str]:
    """The names of the webhooks of a configuration."""
    return (one["name"] for one in configuration.get("webhooks") or ())


async def find_remedy(client: Client, message: str, namespace: str) -> str:
    """The same, with the webhook configurations of a cluster, as far as the caller may list them.

    Args:
        client: whose cluster.
        message: of the API server.
        namespace: of the object that is written.
    """
    configurations: list[tuple[str, Obj]] = []
    if named_webhook(message):
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            try:
                page = await client.list(resource)
            except (ApiError, TransportError):
                continue  # the message names the webhook
            configurations += [(resource.kind, one) for one in page.items]
    return remedy(message, configurations, namespace)


# ---- Events that say that the API server still refuses something --------------------------------

STANDING: Final = 120.0
"""Seconds for which an Event counts: nothing pauses longer between two tries."""
PODS_REFUSED: Final = "FailedCreate"
"""The reason of Kubernetes' own controllers."""
REASONS: Final = (REFUSED, ADMISSION_FAILED, PREEMPTION_FAILED, PODS_REFUSED, COMPOSE_ERROR)


def standing(events: Iterable[Obj], workload: Obj, job: Obj | None, now: float) -> Obj | None:
    """The last Event about a refused write that nothing has overtaken; None without one.

    What is refused is tried and reported again, about once a minute. An Event no longer counts once
    the write has succeeded, or if none follows it for two minutes.

    Args:
        events: about the Workload, or about its job.
        workload: the raw one.
        job: the raw Job or Pod; None if it is of another kind, or was not read.
        now: seconds since the epoch.
    """
    return latest(one for one in events if _stands(one, workload, job, now))


def problem_of(event: Obj) -> str:
    """What such an Event says, for people.

    Args:
        event: the raw one.
    """
    message: str = event["message"]
    return f"its pods are not created: {message}" if event["reason"] == PODS_REFUSED else message


def _stands(event: Obj, workload: Obj, job: Obj | None, now: float) -> bool:
    reason, message, at = event["reason"], event["message"], event.get("lastTimestamp")
    if reason not in REASONS or not at or now - parse_time(at) > STANDING:
        return False
    if states.is_finished(workload) and not (reason == REFUSED and states.is_deleted(workload)):
        return False  # only its release is still to come
    if reason in (ADMISSION_FAILED, PREEMPTION_FAILED):
        return not states.has_quota(workload)
    if reason == PODS_REFUSED:
        return is_refusal(message) and (job is None or _lacks_pods(job))
    what, refused, _ = message.partition(" could not be ")
    if not refused or message.startswith(f"{WORKLOAD} could not be created"):
        return False  # something else is wrong, or the Workload was made meanwhile
    named = what.removeprefix(STATUS)
    obj = workload if named == WORKLOAD or named.startswith(f"{WORKLOADS.kind} ") else job
    part = "status" if what.startswith(STATUS) else ""
    return obj is None or _changed_at(obj, part) <= parse_time(at)


def _changed_at(obj: Obj, part: str) -> float:
    """When an object, or a subresource of it, was changed last."""
    times = [
        parse_time(entry["time"])
        for entry in obj["metadata"].get("managedFields") or ()
        if (entry.get("subresource") or "") == part and entry.get("time")
    ]
    return max(times, default=0.0)


def _lacks_pods(job: Obj) -> bool:
    """Whether a Job that may run has fewer pods than it wants."""
    spec, status = job["spec"], job.get("status") or {}
    over = is_true(job, "Complete") or is_true(job, "Failed")
    done, wanted = status.get("succeeded") or 0, spec.get("parallelism", 1)
    if spec.get("completions") is not None:
        wanted = min(wanted, spec["completions"] - done)
    elif done:
        return False  # a queue of work: no more pods follow the first success
    return not over and not spec.get("suspend") and (status.get("active") or 0) < wanted
