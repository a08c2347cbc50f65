"""A kind with the function that checks or completes its objects before they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from kueuelib.api.forms import Kind, resource_of
from kueuelib.errors import ConfigError

OPERATIONS = ("CREATE", "UPDATE", "DELETE")


def _check_operations(hook: Hook, _: object, operations: tuple[str, ...]) -> None:
    allowed = OPERATIONS[:2] if hook.mutating else OPERATIONS
    if not operations or not set(operations) <= set(allowed):
        raise ConfigError(
            name_of(hook.function),
            f"operations= is {', '.join(operations) or 'empty'}",
            f"write some of {', '.join(allowed)}",
        )


@attrs.frozen
class Hook:
    """A webhook of an operator.

    Attributes:
        kind: the kind, or its class.
        function: a check (`mutating` is False) or a function from object to object.
        mutating: whether the function changes objects.
        operations: when the API server calls it.
        object_selector: only objects with such labels.

    Raises:
        ConfigError: an operation is not one that a webhook can get.
    """

    kind: Kind
    function: Callable[..., Any]
    mutating: bool
    operations: tuple[str, ...] = attrs.field(validator=_check_operations)
    object_selector: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Where it is served."""
        resource = resource_of(self.kind)
        verb = "default" if self.mutating else "validate"
        return f"/{verb}-{resource.plural}.{resource.group or 'core'}"


def name_of(function: object) -> str:
    """What a function is called in messages."""
    return getattr(function, "__name__", f"{function!r:.60}")
