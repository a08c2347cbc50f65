"""Reads a snapshot of a cluster; writes nothing.

Besides GET and LIST it sends access reviews and dry runs, which are not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import anyio
import attrs

from kueuelib.api import kinds
from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.api.names import MANAGED_LABEL, POD_SET_LABEL, QUEUE_LABEL, REASON_FAILED_TO_START
from kueuelib.api.workload_state import is_finished
from kueuelib.app.configuration import CONFIG_MAP, Configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.deployment import DASHBOARDS, MONITOR
from kueuelib.app.doctor.calls import (
    CALL_SECONDS,
    NOT_SERVED,
    admission,
    conversions,
    failure,
    first_line,
    others,
)
from kueuelib.app.doctor.snapshot import (
    BYPASSING,
    CALLS,
    GRANTS,
    PERMISSIONS,
    STARTED,
    WITHDRAWN,
    ClusterSnapshot,
    Review,
    WebhookProbe,
    says_withdrawn,
)
from kueuelib.app.doctor.starts import try_starts
from kueuelib.app.explaining.gather import (
    QUEUEING,
    Lists,
    at_once,
    cluster_of,
    decisive,
    list_kinds,
    list_nodes,
    with_namespaces,
)
from kueuelib.app.explaining.subject import owning_job
from kueuelib.app.installation import Installation
from kueuelib.app.refusers import REASONS
from kueuelib.controllers.foreign_reservations import RESERVED_BY_ANOTHER
from kueuelib.controllers.manifests import SERVICE_ACCOUNT, manager_user
from kueuelib.errors import ApiError, Forbidden, NotFound, TransportError
from kueuelib.jobs.pods.integration import MISSED_PODS
from kueuelib.jobs.reconcile.steps import DELETED_WORKLOAD
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import server_time

AROUND = (
    kinds.CRDS,
    kinds.MUTATING_WEBHOOKS,
    kinds.VALIDATING_WEBHOOKS,
    kinds.LEASES,
    kinds.NODES,
    kinds.PODS,
    kinds.JOBS,
    kinds.DEPLOYMENTS,
    kinds.API_SERVICES,
)
STARTED_PODS = f"{POD_SET_LABEL},{MANAGED_LABEL}!=true"
_SELECTORS = {"Pod": f"{MANAGED_LABEL}=true", "Job": QUEUE_LABEL}
_REVIEWS = "/apis/authorization.k8s.io/v1"
_AT_ONCE = 16
_MOST_WITHDRAWN = 20
_MOST_GRANTS = 500
"""The Events of one reason and namespace that are read to learn where a missing queue led."""


async def read(
    client: Client,
    configuration: Configuration,
    *,
    file: str = "",
    own: bool = False,
    now: float | None = None,
    before: ClusterSnapshot | None = None,
) -> ClusterSnapshot:
    """Reads what the caller may see.

    Args:
        client: whose cluster.
        configuration: the manager's.
        file: the name of its file; empty if none was given.
        own: whether the manager runs with the caller's rights, so that those are reviewed.
        now: the time by which to judge; that of the server by default.
        before: an earlier snapshot; its calls of webhooks and its reviews are reused.

    Raises:
        KueuelibError: the server did not answer, or failed.
    """
    served = await client.served_versions(KUEUE)
    version = kinds.V1BETA2 if kinds.V1BETA2 in served else next(iter(served), "")
    calls: tuple[WebhookProbe, ...] | str
    reviews: tuple[Review, ...] | str
    if before is not None:
        lists = await _lists(client, version, configuration)
        calls = before.unseen.get(CALLS) or tuple(before.calls)
        reviews = before.unseen.get(PERMISSIONS) or tuple(before.reviews)
    else:  # all at once: a webhook that hangs takes its whole deadline
        (lists, more), called, reviews = await at_once(
            _called_lists(client, version, configuration, own=own),
            admission(client, version),
            _reviews(client, configuration, own=own),
        )
        calls = called if isinstance(called, str) else (called, *more)
    settings = engine_settings(configuration)
    lists = await list_nodes(client, lists, version, settings)
    unseen = {
        kind: first_line(error)
        for kind, error in lists.refused.items()
        if kind != kinds.COHORTS.kind or not lists.lacks(kinds.COHORTS)
    }
    if not version:
        unseen |= {one.kind: NOT_SERVED for one in QUEUEING}
    if isinstance(calls, str):
        unseen[CALLS], calls = calls, ()
    if isinstance(reviews, str):
        unseen[PERMISSIONS], reviews = reviews, ()
    snapshot = ClusterSnapshot(
        now=await server_time(client) if now is None else now,
        lists=lists,
        cluster=with_namespaces(cluster_of(lists, settings), lists),
        reviews=reviews,
        calls=calls,
        unseen=unseen,
        configuration=configuration,
        file=file,
    )
    return attrs.evolve(snapshot, starts=await try_starts(client, snapshot))


async def _called_lists(
    client: Client, version: str, configuration: Configuration, *, own: bool
) -> tuple[Lists, tuple[WebhookProbe, ...]]:
    """The objects, and the calls that the API server was made to make because of them."""
    lists = await _lists(client, version, configuration)
    user = "" if own else manager_user(configuration.manager_namespace)
    converted, refused = await at_once(
        conversions(client, version, lists), others(client, version, lists, configuration, user)
    )
    return lists, (*converted, *refused)


async def _lists(client: Client, version: str, configuration: Configuration) -> Lists:
    """The objects that the caller may see."""
    resources = (*(decisive(version) if version else ()), *AROUND)
    lists = await list_kinds(client, resources, selectors=_SELECTORS)
    lists = await _with_lease(client, lists, configuration)
    lists = await _with_bypassing(client, lists)
    lists = await _with_ending(client, lists)
    namespace = configuration.manager_namespace
    secret = configuration.internal_cert_management.webhook_secret_name
    for kind, *names in (
        (kinds.SECRETS, secret),
        (kinds.SERVICE_ACCOUNTS, SERVICE_ACCOUNT),
        (kinds.CONFIG_MAPS, CONFIG_MAP, DASHBOARDS),
        (kinds.SERVICE_MONITORS, MONITOR),
    ):
        keys = [ObjectKey(namespace, name) for name in names]
        lists = lists.completed(await _alone(client, kind, keys))
    lists = lists.completed(await _alone(client, kinds.SERVICES, _services(lists)))
    return await _with_withdrawn(client, await _with_events(client, lists), configuration)


async def _with_lease(client: Client, lists: Lists, configuration: Configuration) -> Lists:
    """The Leases of the manager's namespace, if those of all namespaces may not be listed."""
    if kinds.LEASES.kind not in lists.refused:
        return lists
    return lists.completed(await list_kinds(client, [kinds.LEASES], configuration.lease.namespace))


async def _with_bypassing(client: Client, lists: Lists) -> Lists:
    """The Pods that name a queue and are not queued, and those of jobs, if Pods may be listed."""
    for part, selector in ((BYPASSING, MISSED_PODS), (STARTED, STARTED_PODS)):
        pods = await list_kinds(client, [kinds.PODS], selectors={kinds.PODS.kind: selector})
        lists = lists.completed(Lists({part: pods.of(kinds.PODS.kind)}, {}))
    return lists


async def _with_withdrawn(client: Client, lists: Lists, configuration: Configuration) -> Lists:
    """The Jobs without a queue name that have a Workload, or that lost it for that reason."""
    if configuration.manage_jobs_without_queue_name or kinds.JOBS.kind in lists.refused:
        return lists
    waiting = (one for one in lists.of(kinds.WORKLOADS.kind) if not is_finished(one))
    owners = (ObjectKey(one["metadata"]["namespace"], owning_job(one)) for one in waiting)
    about = (
        key_of({"metadata": event["involvedObject"]})
        for event in lists.of(kinds.EVENTS.kind)
        if says_withdrawn(event)
    )
    known = {key_of(one) for one in lists.of(kinds.JOBS.kind)}
    keys = [one for one in dict.fromkeys((*owners, *about)) if one.name and one not in known]
    jobs = await _alone(client, kinds.JOBS, keys[:_MOST_WITHDRAWN])
    return lists.completed(Lists({WITHDRAWN: jobs.of(kinds.JOBS.kind)}, {}))


async def _with_ending(client: Client, lists: Lists) -> Lists:
    """The objects of a kind that nothing depends on, while it is being deleted and waits for them.

    These are the ProvisioningRequestConfigs.
    """
    kind = kinds.PROVISIONING_REQUEST_CONFIGS
    for crd in lists.of(kinds.CRDS.kind):
        ends = crd["metadata"].get("deletionTimestamp")
        if ends and crd["metadata"]["name"] == f"{kind.plural}.{kind.group}":
            return lists.completed(await list_kinds(client, [kind]))
    return lists


async def _alone(client: Client, resource: Resource, keys: Iterable[ObjectKey]) -> Lists:
    """Some objects of a kind, as if there were no others."""
    objects = []
    for key in keys:
        try:
            objects.append(await client.get(resource, key))
        except NotFound:
            continue
        except Forbidden as error:
            return Lists({}, {resource.kind: error})
    return Lists({resource.kind: objects}, {})


def _services(lists: Lists) -> list[ObjectKey]:
    """The Services to which webhooks lead."""
    configs = [
        one.get("clientConfig") or {}
        for kind in (kinds.MUTATING_WEBHOOKS.kind, kinds.VALIDATING_WEBHOOKS.kind)
        for configuration in lists.of(kind)
        for one in configuration.get("webhooks") or ()
    ]
    for crd in lists.of(kinds.CRDS.kind):
        conversion = crd["spec"].get("conversion") or {}
        configs.append((conversion.get("webhook") or {}).get("clientConfig") or {})
    services = [config["service"] for config in configs if config.get("service")]
    return list(dict.fromkeys(ObjectKey(one["namespace"], one["name"]) for one in services))


async def _with_events(client: Client, lists: Lists) -> Lists:
    """The Events of managers that are not the only ones, and those about what was refused."""
    kind = kinds.EVENTS.kind
    events: list[Obj] = []
    for reason in (RESERVED_BY_ANOTHER, REASON_FAILED_TO_START, DELETED_WORKLOAD, *REASONS):
        try:
            page = await client.list(kinds.EVENTS, field_selector=f"reason={reason}")
        except Forbidden as error:
            return lists.completed(Lists({}, {kind: error}))
        events += page.items
    for namespace in _losing_queues(lists):
        for reason in GRANTS:
            selector = f"reason={reason}"
            page = await client.list(
                kinds.EVENTS, namespace, field_selector=selector, limit=_MOST_GRANTS
            )
            events += page.items
    return lists.completed(Lists({kind: events}, {}))


def _losing_queues(lists: Lists) -> list[str]:
    """The namespaces with Workloads whose LocalQueue does not exist, and that have no admission."""
    known = {key_of(one) for one in lists.of(kinds.LOCAL_QUEUES.kind)}
    names: dict[str, None] = {}
    for one in lists.of(kinds.WORKLOADS.kind):
        queue = ObjectKey(one["metadata"]["namespace"], one["spec"].get("queueName") or "")
        if queue.name and queue not in known and not (one.get("status") or {}).get("admission"):
            names[queue.namespace] = None
    return list(names)


# --- permissions


@attrs.frozen
class _Question:
    group: str
    resource: str
    verb: str
    namespace: str
    name: str
    binding: str = attrs.field(eq=False)

    def body(self, user: str, namespace: str) -> Obj:
        resource, _, subresource = self.resource.partition("/")
        attributes = {
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "verb": self.verb,
            "namespace": self.namespace,
            "name": self.name,
        }
        spec: Obj = {"resourceAttributes": {key: text for key, text in attributes.items() if text}}
        if user:
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
            spec |= {"user": user, "groups": [*groups, "system:authenticated"]}
        return {"apiVersion": "authorization.k8s.io/v1", "spec": spec}


async def _reviews(
    client: Client, configuration: Configuration, *, own: bool
) -> tuple[Review, ...] | str:
    """Reviews everything that the installation grants; returns why, if that is not allowed."""
    namespace = configuration.manager_namespace
    user = "" if own else manager_user(namespace)
    path = f"{_REVIEWS}/{'selfsubjectaccessreviews' if own else 'subjectaccessreviews'}"
    refused: list[str] = []
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def ask(question: _Question) -> bool:
        async with limiter:
            if refused:
                return False
            try:
                body = question.body(user, namespace)
                answer = await client.request(
                    "POST", path, body=body, timeout=CALL_SECONDS, verb="create"
                )
            except (ApiError, TransportError) as error:
                if not (isinstance(error, Forbidden | NotFound) or failure(error)):
                    raise
                refused.append(first_line(error))  # of a webhook, too: reads need none
                return False
        return bool((answer.get("status") or {}).get("allowed"))

    installation = Installation(
        namespace,
        frameworks=configuration.integrations.frameworks,
        secret=configuration.internal_cert_management.webhook_secret_name,
    )
    questions = list(dict.fromkeys(_questions(installation.manifests())))
    answers = await at_once(*map(ask, questions))
    if refused:
        return refused[0]
    return tuple(
        Review(one.group, one.resource, one.verb, one.namespace, allowed, one.binding)
        for one, allowed in zip(questions, answers, strict=True)
    )


def _questions(manifests: list[Obj]) -> Iterator[_Question]:
    """The single permissions in the rules of the manager's ServiceAccount."""
    roles = {(obj["kind"], obj["metadata"]["name"]): obj for obj in manifests}
    for binding in manifests:
        subjects = binding.get("subjects") or ()
        if not any(one["name"] == SERVICE_ACCOUNT for one in subjects):
            continue
        reference = binding["roleRef"]
        role = roles.get((reference["kind"], reference["name"]), {})  # or one of Kubernetes
        where = binding["metadata"].get("namespace") or ""
        named = f"{binding['kind']} {key_of(binding)}"
        for rule in role.get("rules") or ():
            yield from _of_rule(rule, where, named)


def _of_rule(rule: Mapping[str, list[str]], where: str, binding: str) -> Iterator[_Question]:
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or [""]:
                    yield _Question(group, resource, verb, where, name, binding)
