"""`matchConditions`: which requests the API server answers without asking a webhook.

An API server evaluates the expressions (CEL) by itself, so a request that they exclude costs no
call. Kubernetes 1.27 and older drop them and send every request.
"""

from __future__ import annotations

from kueuelib.api.meta import Obj

NEW, OLD = "object", "oldObject"


def condition(name: str, *alternatives: str) -> Obj:
    """One condition, of which one alternative has to hold.

    Args:
        name: of the condition; unique in its webhook.
        alternatives: expressions, joined by "or".
    """
    return {"name": name, "expression": " || ".join(alternatives)}


def of_others(user: str) -> Obj:
    """Requests of all users but one, for example the process that would be called."""
    return condition("of-others", f"request.userInfo.username != '{user}'")


def new_or_changed(*paths: str) -> Obj:
    """New objects, and updates that change a field.

    Args:
        paths: of fields, for example `spec` or `metadata.labels`.
    """
    return condition("new-or-changed", IS_NEW, *(changed(path) for path in paths))


IS_NEW = f"{OLD} == null"
"""Holds for an object that is created."""


def changed(path: str) -> str:
    """Holds when an update sets, removes or changes a field; absent and empty differ."""
    return f"{_value(NEW, path)} != {_value(OLD, path)}"


def present(variable: str, path: str) -> str:
    """Holds when an object has a field; its parents may be absent.

    Args:
        variable: `NEW` or `OLD`.
        path: of the field.
    """
    fields = path.split(".")
    return " && ".join(
        f"has({variable}.{'.'.join(fields[:depth])})" for depth in range(1, len(fields) + 1)
    )


def _value(variable: str, path: str) -> str:
    return f"({present(variable, path)} ? {variable}.{path} : null)"
