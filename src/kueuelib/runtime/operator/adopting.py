"""Objects that exist before an operator applies them."""

from __future__ import annotations

from collections.abc import Collection

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ConfigError, Conflict
from kueuelib.machinery.ownership import claim_problem, is_left_over
from kueuelib.runtime.client import Client
from kueuelib.runtime.reading import managers_of, read, take_over


async def claim(
    client: Client,
    resource: Resource,
    key: ObjectKey,
    present: Obj | None,
    owner: Obj,
    by: str,
    adopt: bool | Collection[str],
) -> None:
    """Checks that an object may be applied as a child, and takes over fields of others.

    Args:
        client: reads the object and writes its `managedFields`.
        resource: its kind.
        key: its name.
        present: the object in the cache, which lacks objects without the label of the operator.
        owner: the intended owner.
        by: the operator.
        adopt: see `Context.apply`.

    Raises:
        ConfigError: it is foreign.
        Conflict: it was changed meanwhile, or it is left from an earlier owner with the same name.
    """
    managers = managers_of(adopt)
    actual = await read(client, resource, key) if present is None or managers else present
    if actual is not None and is_left_over(actual, owner):
        raise Conflict(
            f"{resource.kind} {key} belongs to an earlier {owner['kind']} with the same name, and "
            "has not been deleted yet"
        )
    problem = actual and claim_problem(actual, owner, by, adopt=bool(adopt))
    if problem:
        raise ConfigError(f"{resource.kind} {key}", *problem)
    if actual is not None:
        await take_over(client, resource, actual, managers)
