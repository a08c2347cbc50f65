"""One object from the server, whose fields it is, and the error for a kind that cannot be read."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.errors import ConfigError, NotFound
from kueuelib.machinery.field_owners import taken_over
from kueuelib.runtime.queries import PatchType

if TYPE_CHECKING:
    from kueuelib.runtime.client import Client


async def read(client: Client, resource: Resource, key: ObjectKey) -> Obj | None:
    """Read one object; return None if it does not exist.

    Raises:
        ApiError: it could not be read; `NotFound` if the kind is not served.
        TransportError: the same.
    """
    try:
        return await client.get(resource, key)
    except NotFound as error:
        if error.details.get("name") != key.name:
            raise  # the kind is missing, not the object
        return None


async def take_over(
    client: Client, resource: Resource, obj: Obj, managers: Collection[str]
) -> None:
    """Make what others wrote in an object what this client has applied; see `taken_over`.

    Nothing is sent if they own nothing. If the process ends before it applies the object, the
    fields stay as they are until the next apply.

    Args:
        client: writes; its field manager takes over.
        resource: the kind.
        obj: the object as the server returned it.
        managers: those whose fields are taken over.

    Raises:
        Conflict: the object was changed meanwhile.
    """
    entries = taken_over(obj, managers, client.field_manager)
    if entries is not None:
        version = obj["metadata"]["resourceVersion"]
        patch = [
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        ]
        await client.patch(resource, key_of(obj), patch, PatchType.JSON)


async def take_over_named(
    client: Client, resource: Resource, key: ObjectKey, adopt: bool | Collection[str]
) -> None:
    """The same for an object on the server, if it exists; a read if managers are named.

    Raises:
        ConfigError: see `managers_of`.
        Conflict: the object was changed meanwhile.
    """
    managers = managers_of(adopt)
    actual = await read(client, resource, key) if managers else None
    if actual is not None:
        await take_over(client, resource, actual, managers)


def managers_of(adopt: bool | Collection[str]) -> Collection[str]:
    """The field managers that are named.

    Raises:
        ConfigError: it is a text, which would be read letter by letter.
    """
    if isinstance(adopt, str):
        raise ConfigError("adopt", f"is {adopt!r}", f"write adopt=[{adopt!r}]")
    return () if isinstance(adopt, bool) else adopt


def unlisted(resource: Resource, error: Exception | None) -> ConfigError:
    """The error for a kind that could not be read in time, with what prevented it."""
    return ConfigError(
        resource.plural,
        f"could not be listed in time ({str(error or '') or 'no answer'})",
        "check that the kind is installed and may be listed and watched",
    )
