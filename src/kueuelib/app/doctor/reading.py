"""Reads a snapshot of a cluster; writes nothing.

Besides GET and LIST it sends access reviews and dry runs, which are not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import anyio
import attrs

from kueuelib.api import kinds
from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.api.names import IN_USE_FINALIZER, MANAGED_LABEL, QUEUE_LABEL
from kueuelib.app.configuration import CONFIG_MAP, Configuration
from kueuelib.app.deployment import DASHBOARDS, MONITOR
from kueuelib.app.doctor.snapshot import CALLS, PERMISSIONS, Call, Review, Snapshot
from kueuelib.app.explaining.gather import (
    QUEUEING,
    Lists,
    cluster_of,
    decisive,
    list_kinds,
    with_namespaces,
)
from kueuelib.app.installation import Installation
from kueuelib.app.part_settings import engine_settings
from kueuelib.app.stored_versions import is_unconverted
from kueuelib.controllers.manifests import SERVICE_ACCOUNT
from kueuelib.controllers.strangers import RESERVED_BY_ANOTHER
from kueuelib.controllers.webhooks import TIMEOUT_SECONDS, queueing_entries
from kueuelib.errors import ApiError, Forbidden, KueuelibError, NotFound, TransportError
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import collection_path, params_of
from kueuelib.runtime.server_time import server_time

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
_SELECTORS = {"Pod": f"{MANAGED_LABEL}=true", "Job": QUEUE_LABEL}
_REVIEWS = "/apis/authorization.k8s.io/v1"
_AT_ONCE = 16
_PROBE, _NAMESPACE = "kueuelib-doctor", "default"
_POD = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
CONVERTED: tuple[tuple[Resource, Obj], ...] = (
    (kinds.CLUSTER_QUEUES, {}),
    (kinds.LOCAL_QUEUES, {"clusterQueue": _PROBE}),
    (kinds.WORKLOADS, {"podSets": [{"name": "main", "count": 1, "template": _POD}]}),
)
"""The kinds whose versions differ, each with a spec that is valid in all of them."""
_CALL_SECONDS = TIMEOUT_SECONDS + 2.0
"""Seconds after which the API server has reported that an admission webhook does not answer."""
_NOT_CALLED = ("failed calling webhook", "conversion webhook")
"""The message of an API server about a webhook that it cannot reach."""


async def read(
    client: Client,
    configuration: Configuration,
    *,
    file: str = "",
    own: bool = False,
    now: float | None = None,
    before: Snapshot | None = None,
) -> Snapshot:
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
    resources = (*(decisive(version) if version else ()), *AROUND)
    lists = await list_kinds(client, resources, selectors=_SELECTORS)
    lists = await _with_lease(client, lists, configuration)
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
    lists = await _with_events(client, lists)
    unseen = {
        kind: _reason(error)
        for kind, error in lists.refused.items()
        if kind != kinds.COHORTS.kind or not lists.lacks(kinds.COHORTS)
    }
    if not version:
        text = "the cluster does not serve the queueing kinds"
        unseen |= {one.kind: text for one in QUEUEING}
    calls: tuple[Call, ...] | str = ()
    reviews: tuple[Review, ...] | str = ()
    if before is not None:
        calls = before.unseen.get(CALLS) or tuple(before.calls)
        reviews = before.unseen.get(PERMISSIONS) or tuple(before.reviews)
    else:
        calls = await _calls(client, version, lists)
        reviews = await _reviews(client, configuration, own=own)
    if isinstance(calls, str):
        unseen[CALLS], calls = calls, ()
    if isinstance(reviews, str):
        unseen[PERMISSIONS], reviews = reviews, ()
    return Snapshot(
        now=await server_time(client) if now is None else now,
        lists=lists,
        cluster=with_namespaces(cluster_of(lists, engine_settings(configuration)), lists),
        reviews=reviews,
        calls=calls,
        unseen=unseen,
        configuration=configuration,
        file=file,
    )


def _reason(error: KueuelibError) -> str:
    return str(error).splitlines()[0]


async def _with_lease(client: Client, lists: Lists, configuration: Configuration) -> Lists:
    """The Leases of the manager's namespace, if those of all namespaces may not be listed."""
    if kinds.LEASES.kind not in lists.refused:
        return lists
    return lists.completed(await list_kinds(client, [kinds.LEASES], configuration.lease.namespace))


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
    """The Events of managers that are not the only ones."""
    kind, selector = kinds.EVENTS.kind, f"reason={RESERVED_BY_ANOTHER}"
    try:
        page = await client.list(kinds.EVENTS, field_selector=selector)
    except Forbidden as error:
        return lists.completed(Lists({}, {kind: error}))
    return lists.completed(Lists({kind: page.items}, {}))


# --- webhooks


async def _calls(client: Client, version: str, lists: Lists) -> tuple[Call, ...] | str:
    """Makes the API server call the webhooks; returns why, if that was not possible."""
    if not version:
        return "the cluster does not serve the queueing kinds"
    try:
        made = await _tried(client, kinds.RESOURCE_FLAVORS.at(version), {})
    except Forbidden as error:
        if "denied the request" not in str(error):
            return _reason(error)
        by_us = any(f'"{one.entry["name"]}"' in str(error) for one in queueing_entries())
        admission = Call("admission", "", by_us)  # a refusal is an answer
    except (ApiError, TransportError) as error:
        admission = Call("admission", _failure(error))
    else:
        by_us = IN_USE_FINALIZER in (made["metadata"].get("finalizers") or ())
        admission = Call("admission", "", by_us)
    if lists.unconverted:
        failure = next(iter(lists.unconverted.values()))
        return (admission, Call("conversion", _reason(failure)))
    conversions: list[Call] = []
    for resource, spec in _converted(lists, version):
        conversions = await _conversion(client, resource, spec) or conversions
        if any(call.error for call in conversions):
            break
    return (admission, *conversions)


def _converted(lists: Lists, version: str) -> Iterator[tuple[Resource, Obj]]:
    """The kinds that a webhook converts, in the served version that is not the stored one, each
    with a valid spec. A CRD that was not read is taken to serve both versions.
    """
    crds = {crd["metadata"]["name"]: crd for crd in lists.of(kinds.CRDS.kind)}
    for resource, spec in CONVERTED:
        crd = crds.get(f"{resource.plural}.{resource.group}")
        if crd is None:
            other = kinds.V1BETA1 if version == kinds.V1BETA2 else kinds.V1BETA2
            yield resource.at(other), spec
            continue
        for one in crd["spec"]["versions"]:
            if one["name"] in kinds.VERSIONS and one["served"] and not one["storage"]:
                yield resource.at(one["name"]), spec


async def _conversion(client: Client, resource: Resource, spec: Obj) -> list[Call]:
    """Makes the API server convert an object, as far as the caller may."""
    try:
        await _tried(client, resource, spec)
    except (ApiError, TransportError) as error:
        if is_unconverted(error) or isinstance(error, TransportError):
            return [Call("conversion", _failure(error))]
    else:
        return [Call("conversion", "")]
    try:  # an answer may come from the API server's cache, which is better than none
        await client.list(resource, limit=1)
    except (Forbidden, NotFound):
        return []
    except (ApiError, TransportError) as error:
        return [Call("conversion", _failure(error))]
    return [Call("conversion", "")]


async def _tried(client: Client, resource: Resource, spec: Obj) -> Obj:
    """What a dry run would create."""
    namespace = _NAMESPACE if resource.namespaced else ""
    body: Obj = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": _PROBE, **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }
    made: Obj = await client.request(
        "POST",
        collection_path(resource, namespace),
        params=params_of(dryRun="All"),
        body=body,
        timeout=_CALL_SECONDS,
        verb="create",
    )
    return made


def _failure(error: KueuelibError) -> str:
    """The failure of a webhook that did not answer; other refusals are answers.

    Raises:
        TransportError: the connection to the server failed.
    """
    text = _reason(error)
    if isinstance(error, TransportError):
        if not error.timed_out:
            raise error
        return text
    return text if any(words in text for words in _NOT_CALLED) else ""


# --- permissions


@attrs.frozen
class _Question:
    group: str
    resource: str
    verb: str
    namespace: str
    name: str

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
    user = "" if own else f"system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}"
    path = f"{_REVIEWS}/{'selfsubjectaccessreviews' if own else 'subjectaccessreviews'}"
    allowed: dict[_Question, bool] = {}
    refused: list[str] = []
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def ask(question: _Question) -> None:
        async with limiter:
            if refused:
                return
            try:
                body = question.body(user, namespace)
                answer = await client.request("POST", path, body=body, verb="create")
            except (Forbidden, NotFound) as error:
                refused.append(_reason(error))
                return
        allowed[question] = bool((answer.get("status") or {}).get("allowed"))

    installation = Installation(
        namespace,
        frameworks=configuration.integrations.frameworks,
        secret=configuration.internal_cert_management.webhook_secret_name,
    )
    questions = list(dict.fromkeys(_questions(installation.manifests())))
    async with anyio.create_task_group() as group:
        for question in questions:
            group.start_soon(ask, question)
    if refused:
        return refused[0]
    return tuple(
        Review(one.group, one.resource, one.verb, one.namespace, allowed[one]) for one in questions
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
        for rule in role.get("rules") or ():
            yield from _of_rule(rule, where)


def _of_rule(rule: Mapping[str, list[str]], where: str) -> Iterator[_Question]:
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or [""]:
                    yield _Question(group, resource, verb, where, name)
