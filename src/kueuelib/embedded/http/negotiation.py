"""Negotiates the form of an answer."""

from __future__ import annotations

from functools import lru_cache

import attrs

from kueuelib.errors import NotAcceptable

JSON = "application/json"
YAML = "application/yaml"
_FORMATS = {JSON: JSON, YAML: YAML, "application/*": JSON, "*/*": JSON, "text/yaml": YAML}


@attrs.frozen
class Form:
    """One accepted form.

    Attributes:
        format: `application/json` or `application/yaml`.
        view: `Table`, `PartialObjectMetadata`, `PartialObjectMetadataList`, another `as`, or empty.
        group: the group of the view.
        version: the version of the view.
    """

    format: str = JSON
    view: str = ""
    group: str = ""
    version: str = ""

    @property
    def media_type(self) -> str:
        """The form with its parameters, for `Content-Type`."""
        if not self.view:
            return self.format
        return f"{self.format};g={self.group};v={self.version};as={self.view}"


_NOTHING_KNOWN = (
    f"406: Not Acceptable\n\nAvailable representations: {JSON}, {YAML}, "
    "application/vnd.kubernetes.protobuf"
)
PLAIN = Form()
"""Plain JSON."""

VIEWS = frozenset(
    (view, "meta.k8s.io", version)
    for view in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
    for version in ("v1", "v1beta1")
)
DISCOVERY_VIEWS = frozenset(
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io", version) for version in ("v2", "v2beta1")
)


@lru_cache(256)
def negotiate(accept: str, views: frozenset[tuple[str, str, str]] = frozenset()) -> Form:
    """The first form of an `Accept` header that the server supports.

    Args:
        accept: the header; empty for any form.
        views: the offered `(as, group, version)`.

    Raises:
        NotAcceptable: there is none.
    """
    if not accept.strip():
        return Form()
    ranked: list[tuple[float, int, Form]] = []
    known = False
    for place, clause in enumerate(accept.split(",")):
        media, *rest = (part.strip() for part in clause.split(";"))
        format_ = _FORMATS.get(media.lower())
        if format_ is None:
            continue
        known = True
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        view = parameters.get("as", "")
        group, version = parameters.get("g", ""), parameters.get("v", "")
        if view and (view, group, version) not in views:
            continue
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 1.0
        wanted = Form(format_, view, group, version) if view else Form(format_)
        ranked.append((-quality, place, wanted))
    if not known:
        raise NotAcceptable(_NOTHING_KNOWN, details={})
    if not ranked:
        raise NotAcceptable(f"only the following media types are accepted: {JSON}, {YAML}")
    return min(ranked, key=lambda each: each[:2])[2]
