"""The attributes of a request for access control."""

from __future__ import annotations

from aiohttp import web

from kueuelib.embedded.access.attributes import Attributes
from kueuelib.embedded.http.parameters import flag
from kueuelib.embedded.http.routes import Route
from kueuelib.errors import InvalidSelector
from kueuelib.machinery.selectors import parse_field_selector

_OBJECT_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_COLLECTION_VERBS = {"GET": "list", "HEAD": "list", "DELETE": "deletecollection"}


def wish_of(request: web.BaseRequest, route: Route | None) -> Attributes:
    """The attributes of a request, for its resource or its path."""
    method = request.method
    if route is None or not route.plural:
        return Attributes(_OBJECT_VERBS.get(method, method.lower()), path=request.path)
    verb = _OBJECT_VERBS.get(method, method.lower())
    name = route.name
    if route.watched and verb == "get":
        verb = "watch"
    elif not name:
        verb = _COLLECTION_VERBS.get(method, verb)
        if verb == "list" and flag(request.query, "watch"):
            verb = "watch"
        if verb in ("list", "watch"):
            name = _selected_name(request.query.get("fieldSelector", ""))
    own = not route.group and route.plural == "namespaces"
    return Attributes(
        verb,
        route.group,
        route.plural,
        route.subresource,
        route.name if own else route.namespace,
        name,
        version=route.version,
    )


def _selected_name(field_selector: str) -> str:
    if "metadata.name" not in field_selector:
        return ""
    try:
        return parse_field_selector(field_selector).exact("metadata.name") or ""
    except InvalidSelector:
        return ""  # it is refused where the selector is used
