"""Makes the API server call the webhooks, with requests that change nothing.

A webhook that hangs takes its whole deadline, so nothing here waits for something else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Any

import anyio

from kueuelib.api import kinds
from kueuelib.api.meta import Obj, Resource
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.app.doctor.snapshot import Call
from kueuelib.app.explaining.gather import Lists
from kueuelib.app.stored_versions import is_unconverted
from kueuelib.controllers.webhooks import TIMEOUT_SECONDS, queueing_entries
from kueuelib.errors import ApiError, Forbidden, KueuelibError, NotFound, TransportError
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import collection_path, params_of

_PROBE, _NAMESPACE = "kueuelib-doctor", "default"
_POD = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
CONVERTED: tuple[tuple[Resource, Obj], ...] = (
    (kinds.CLUSTER_QUEUES, {}),
    (kinds.LOCAL_QUEUES, {"clusterQueue": _PROBE}),
    (kinds.WORKLOADS, {"podSets": [{"name": "main", "count": 1, "template": _POD}]}),
)
"""The kinds whose versions differ, each with a spec that is valid in all of them."""
NOT_SERVED = "the cluster does not serve the queueing kinds"
_CALL_SECONDS = TIMEOUT_SECONDS + 2.0
"""Seconds after which the API server has reported that an admission webhook does not answer."""
_NOT_CALLED = ("failed calling webhook", "conversion webhook")
"""The message of an API server about a webhook that it cannot reach."""


def first_line(error: KueuelibError) -> str:
    """What a failure says, without its details."""
    return str(error).splitlines()[0]


async def at_once(*calls: Awaitable[Any]) -> list[Any]:
    """The results of some calls, in their order.

    Args:
        calls: each is awaited once; an error of one ends the others.

    Raises:
        KueuelibError: one of them failed.
    """
    results: dict[int, Any] = {}
    errors: list[KueuelibError] = []

    async def finish(number: int, call: Awaitable[Any]) -> None:
        try:
            results[number] = await call
        except KueuelibError as error:
            errors.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for number, call in enumerate(calls):
            group.start_soon(finish, number, call)
    for error in errors:
        raise error
    return [results[number] for number in range(len(calls))]


async def admission(client: Client, version: str) -> Call | str:
    """Makes the API server call the admission webhooks.

    Args:
        client: whose cluster.
        version: of the queueing API; empty if it is not served.

    Returns:
        The call, or why it was not possible.
    """
    if not version:
        return NOT_SERVED
    try:
        made = await _tried(client, kinds.RESOURCE_FLAVORS.at(version), {})
    except Forbidden as error:
        if "denied the request" not in str(error):
            return first_line(error)
        by_us = any(f'"{one.entry["name"]}"' in str(error) for one in queueing_entries())
        return Call("admission", "", by_us)  # a refusal is an answer
    except (ApiError, TransportError) as error:
        return Call("admission", _failure(error))
    by_us = IN_USE_FINALIZER in (made["metadata"].get("finalizers") or ())
    return Call("admission", "", by_us)


async def conversions(client: Client, version: str, lists: Lists) -> tuple[Call, ...]:
    """Makes the API server convert objects, as far as the caller may.

    Args:
        client: whose cluster.
        version: of the queueing API; empty if it is not served.
        lists: what was read; if some of it could not be converted, nothing is called.
    """
    if lists.unconverted:
        return (Call("conversion", first_line(next(iter(lists.unconverted.values())))),)
    tried = [_conversion(client, *one) for one in _converted(lists, version)] if version else []
    made = [call for call in await at_once(*tried) if call is not None]
    return tuple([call for call in made if call.error][:1] or made[-1:])


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


async def _conversion(client: Client, resource: Resource, spec: Obj) -> Call | None:
    """Makes the API server convert an object; None if the caller may not."""
    listing = client.list(resource, limit=1, timeout=_CALL_SECONDS)
    refusal, failure = await at_once(_error_of(_tried(client, resource, spec)), _error_of(listing))
    if refusal is None or is_unconverted(refusal) or isinstance(refusal, TransportError):
        return Call("conversion", _failure(refusal))
    # The answer to the list may come from the API server's cache, which is better than none.
    return (
        None if isinstance(failure, Forbidden | NotFound) else Call("conversion", _failure(failure))
    )


async def _error_of(call: Awaitable[object]) -> ApiError | TransportError | None:
    try:
        await call
    except (ApiError, TransportError) as error:
        return error
    return None


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


def _failure(error: ApiError | TransportError | None) -> str:
    """The failure of a webhook that did not answer; other refusals are answers.

    Raises:
        TransportError: the connection to the server failed.
    """
    text = "" if error is None else first_line(error)
    if isinstance(error, TransportError):
        if not error.timed_out:
            raise error
        return text
    return text if any(words in text for words in _NOT_CALLED) else ""
