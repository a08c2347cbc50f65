"""Lists queueing objects even while their conversion webhook does not answer.

An API server needs no webhook for objects in the version in which they are stored. The continue
tokens of a list are the same in all versions of a kind. So each page is read in any version that
the server can give, and converted here.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kueuelib.api.conversion import convert
from kueuelib.api.kinds import KUEUE, VERSIONS
from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import ApiError, KueuelibError, NotFound
from kueuelib.machinery.reflector_options import PAGE_SIZE
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import ObjectList

CONVERSION = "conversion webhook for "
"""How an API server begins a message about a conversion webhook that failed."""


@attrs.frozen
class Listed:
    """The objects of a kind.

    Attributes:
        objects: raw, in the version that was asked for.
        failure: why the API server could not convert some of them; None if it could.
        complete: whether all objects could be read.
    """

    objects: list[Obj]
    failure: ApiError | None = None
    complete: bool = True


def is_unconverted(error: KueuelibError | None) -> bool:
    """Whether an API server failed because a conversion webhook did."""
    return isinstance(error, ApiError) and CONVERSION in str(error)


async def list_stored(
    client: Client, resource: Resource, namespace: str = "", label_selector: str = ""
) -> Listed:
    """Every object of a kind, read page by page.

    Args:
        client: whose cluster.
        resource: the kind, in the version to return.
        namespace: the only one; empty for all.
        label_selector: of the objects.

    Raises:
        ApiError: the server refused something else than a conversion.
    """
    objects: list[Obj] = []
    failure: ApiError | None = None
    readable = list(_versions(resource))
    token, size = "", PAGE_SIZE
    while True:
        page: ObjectList | None = None
        for version in tuple(readable):
            try:
                page = await client.list(
                    version,
                    namespace,
                    label_selector=label_selector,
                    limit=size,
                    continue_token=token,
                )
            except NotFound:
                if version == resource:
                    raise
                readable.remove(version)
            except ApiError as error:
                if not is_unconverted(error):
                    raise
                failure = error
            else:
                break
        if page is not None:
            objects += [_in_version(obj, resource) for obj in page.items]
            token, size = page.continue_token, min(2 * size, PAGE_SIZE)
            if not token:
                return Listed(objects, failure)
        elif size == 1:
            return Listed(objects, failure, complete=False)
        else:
            size //= 2


def _versions(resource: Resource) -> Iterator[Resource]:
    """The kind in its versions, the given one first."""
    yield resource
    if resource.group == KUEUE:
        yield from (resource.at(one) for one in VERSIONS if one != resource.version)


def _in_version(obj: Obj, resource: Resource) -> Obj:
    if obj.get("apiVersion", resource.api_version) == resource.api_version:
        return obj
    return convert(obj, resource.version)
