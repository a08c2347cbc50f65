"""One object from the server, and the error for a kind that cannot be read."""

from __future__ import annotations

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ConfigError, NotFound
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


def unlisted(resource: Resource, error: Exception | None) -> ConfigError:
    """The error for a kind that could not be read in time, with what prevented it."""
    return ConfigError(
        resource.plural,
        f"could not be listed in time ({str(error or '') or 'no answer'})",
        "check that the kind is installed and may be listed and watched",
    )
