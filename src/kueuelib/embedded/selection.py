"""Selects the objects of a request by namespace, label selector and field selector."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.embedded.registry.kind import Kind
from kueuelib.embedded.storage import Entry
from kueuelib.embedded.verbs import ListOptions, WatchOptions
from kueuelib.errors import BadRequest, InvalidSelector
from kueuelib.machinery.fields import FieldSelector, parse_field_selector
from kueuelib.machinery.selectors import Selector, parse_label_selector

NAME = "metadata.name"
NAMESPACE = "metadata.namespace"
Selectors = ListOptions | WatchOptions


@attrs.frozen
class Selection:
    """Compiled selectors.

    Attributes:
        namespace: empty for all namespaces.
        name: the only possible name, or empty.
        accepts: whether an entry matches; None if every entry of the namespace does.
    """

    namespace: str
    name: str
    accepts: Callable[[Entry], bool] | None

    @property
    def key(self) -> ObjectKey | None:
        """The only possible object, or None."""
        return ObjectKey(self.namespace, self.name) if self.name else None


def select(
    kind: Kind, namespace: str, options: Selectors, check: Callable[[], None] = lambda: None
) -> Selection:
    """Compiles the selectors of a request.

    Args:
        kind: of the objects.
        namespace: empty for all.
        options: with the selectors.
        check: validates the rest of the request once both selectors have been parsed.

    Raises:
        BadRequest: a selector cannot be parsed, or uses a field that the kind does not support.
    """
    try:
        labels = parse_label_selector(options.label_selector)
        fields = parse_field_selector(options.field_selector)
    except InvalidSelector as error:
        raise BadRequest(str(error)) from error
    check()
    for path in fields.paths:
        usual = (NAME,) if kind.field_names and not kind.namespaced else (NAME, NAMESPACE)
        if path not in usual and path not in kind.field_names:
            text = f"field label not supported: {path}"
            if kind.kind == "Job":
                text = f'field label "{path}" not supported for Job'
            if kind.builtin and not kind.field_names:
                text = f'"{path}" is not a known field selector: only "{NAME}", "{NAMESPACE}"'
            raise BadRequest(text)
    if kind.twin is not None:
        renamed = (
            attrs.evolve(each, path=kind.twin.field(each.path)) for each in fields.requirements
        )
        fields = FieldSelector(tuple(renamed))
    exact = fields.exact(NAME) or ""
    space = fields.exact(NAMESPACE) or ""
    name = exact if exact and (namespace or not kind.namespaced) else ""
    if not namespace and not labels.requirements and len(fields.requirements) == 0:
        return Selection("", "", None)
    return Selection(
        namespace or (space if kind.namespaced else ""), name, _acceptor(namespace, labels, fields)
    )


def _acceptor(
    namespace: str, labels: Selector, fields: FieldSelector
) -> Callable[[Entry], bool] | None:
    by_labels = bool(labels.requirements)
    by_fields = bool(fields.requirements)
    exact = fields.exact(NAME)
    if not by_labels and not by_fields:
        return lambda entry: entry.key.namespace == namespace

    def accepts(entry: Entry) -> bool:
        key = entry.key
        if namespace and key.namespace != namespace:
            return False
        if exact is not None and key.name != exact:
            return False
        if by_labels and not labels.matches(entry.labels):
            return False
        if not by_fields:
            return True
        return fields.matches({**entry.fields, NAME: key.name, NAMESPACE: key.namespace})

    return accepts
