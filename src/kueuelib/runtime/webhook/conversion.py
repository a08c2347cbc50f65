"""`ConversionReview` v1: objects of one version in, the same objects of another out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.errors import KueuelibError

Converter = Callable[[Obj, str], Obj]
"""(object, version without group) to the object in that version, as a new dict."""
YIELD_EVERY = 100
"""After this many objects, other requests get a turn."""
_KEPT = ("name", "namespace", "uid")


class ConversionFailed(KueuelibError):
    """An object cannot be converted; the message names it."""


async def convert_all(request: Mapping[str, Any], converter: Converter) -> list[Obj]:
    """All objects of a review's `request`, converted.

    Raises:
        ConversionFailed: one cannot be converted; then none is.
    """
    desired = str(request["desiredAPIVersion"])
    converted = []
    for number, obj in enumerate(request.get("objects") or (), 1):
        converted.append(convert_one(obj, desired, converter))
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
    return converted


def convert_at_once(request: Mapping[str, Any], converter: Converter) -> list[Obj] | None:
    """The result of `convert_all`, if that never lets other requests pass; else None.

    Raises:
        ConversionFailed: one cannot be converted.
    """
    objects, desired = request.get("objects") or (), str(request["desiredAPIVersion"])
    if len(objects) >= YIELD_EVERY:
        return None
    return [convert_one(obj, desired, converter) for obj in objects]


def convert_one(obj: Obj, desired: str, converter: Converter) -> Obj:
    """One object in the version `desired`, which is written `group/version`.

    Raises:
        ConversionFailed: the converter refused it, or changed its identity.
    """
    present = str(obj.get("apiVersion") or "")
    if present == desired:
        return obj
    meta = obj.get("metadata") or {}
    what = f"{obj.get('kind')} {meta.get('namespace') or ''}/{meta.get('name') or ''}"
    group, _, version = desired.rpartition("/")
    if present.rpartition("/")[0] != group:
        raise ConversionFailed(f"{what}: cannot become {desired}, it is {present!r}")
    try:
        made = converter(obj, version)
    except (KueuelibError, ValueError) as error:
        raise ConversionFailed(f"{what}: {present} to {desired}: {error}") from error
    if made.get("apiVersion") != desired:
        raise ConversionFailed(f"{what}: became {made.get('apiVersion')!r} instead of {desired}")
    after = made.get("metadata") or {}
    for field in _KEPT:
        if after.get(field) != meta.get(field):
            raise ConversionFailed(f"{what}: the conversion changed metadata.{field}")
    return made


def review_answer(uid: str, converted: list[Obj] | None, message: str = "") -> Obj:
    """The `response` of a review: the objects, or the reason of the failure."""
    if converted is None:
        return {
            "uid": uid,
            "convertedObjects": [],
            "result": {"status": "Failure", "message": message},
        }
    return {"uid": uid, "convertedObjects": converted, "result": {"status": "Success"}}
