"""Objects in any form that a caller may have: where they enter, and how they are handed out.

Raw JSON, values of classes with `@crd`, and objects of generated classes such as those of
kubernetes_asyncio go in. They come out in the form of the class that is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from kueuelib.api.meta import KubeObject, Obj, Resource
from kueuelib.api.models import (
    Model,
    decode_model,
    encode_model,
    is_model,
    is_model_class,
    resource_of_model,
    without_models,
)
from kueuelib.errors import ConfigError

Typed = KubeObject | Model
"""An object that is not raw JSON."""
Kind = Resource | type[Typed]
"""A kind of objects; named by its class, they are handed out as values of the class."""
T = TypeVar("T", bound=Typed)


def raw_of(given: Mapping[str, Any] | Typed) -> Obj:
    """The raw form of an object; a raw one is returned as it is.

    Models below the metadata are left: `encode_json` knows them, and `without_models`.

    Raises:
        ConfigError: it is not an object, or what the `to_dict()` of a model returns.
        InvalidObject: a value in it has no form in JSON.
    """
    if isinstance(given, Mapping) and "api_version" in given and "apiVersion" not in given:
        raise ConfigError(
            f"a {given.get('kind') or 'dict'} with the key api_version",
            "is not in the form of the API, so the API server would drop fields",
            "give the model itself, or encode(model), instead of model.to_dict()",
        )
    if type(given) is dict and type(given.get("metadata")) is dict:
        return given
    if isinstance(given, Mapping):
        return dict(without_models(given))
    if isinstance(given, KubeObject):
        from kueuelib.api.codec import encode

        return encode(given)
    if is_model(given):
        if resource_of_model(type(given)) is None:
            raise ConfigError(f"a {type(given).__name__}", "is not a whole object", _GIVE)
        return encode_model(given)
    raise ConfigError(f"{given!r:.60}", "is not an object", _GIVE)


def typed_of(cls: type[T], obj: Obj) -> T:
    """The value of a class for a raw object, which must not be changed afterwards.

    Raises:
        InvalidObject: the object does not fit the class.
    """
    if is_model_class(cls):
        made: Any = decode_model(cls, obj)
        return made  # type: ignore[no-any-return]
    from kueuelib.api.codec import decode

    return decode(cls, obj)


def resource_of(kind: Resource | type[Any]) -> Resource:
    """The `Resource` of a kind.

    Raises:
        ConfigError: it is none: a class that is neither decorated with `crd` nor generated for a
            whole object, or something else.
    """
    if isinstance(kind, Resource):
        return kind
    if is_model_class(kind):
        resource = resource_of_model(kind)
        if resource is not None:
            return resource
        raise ConfigError(kind.__name__, "is not the class of a kind", "name one such as V1Pod")
    of_class = getattr(kind, "resource", None)
    if isinstance(kind, type) and isinstance(of_class, Resource):
        return of_class
    if isinstance(kind, KubeObject) or is_model(kind):
        name = type(kind).__name__
        raise ConfigError(f"a {name}", "is an object, not a kind", f"give the class {name}")
    if isinstance(kind, type):
        fix = "decorate it with @crd, or for a kind that exists " + _RESOURCE
        if "resource" in inspect.get_annotations(kind):
            raise ConfigError(kind.__name__, "resource is a field", _RESOURCE)
        raise ConfigError(kind.__name__, "has no resource", fix)
    raise ConfigError(f"{kind!r:.60}", "is not a kind", "name a class with @crd, or a Resource")


_RESOURCE = "write resource: ClassVar[Resource] = kinds.PODS, or whichever kind it is"
_GIVE = "give raw JSON, a value of a class with @crd, or a model of kubernetes_asyncio"
