"""`matchConditions`: which requests the API server answers without asking a webhook.

An API server evaluates the expressions (CEL) by itself, so a request that they exclude costs no
call. Kubernetes 1.27 and older drop them and send every request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def new_or_changed(*paths: str, new: Sequence[str] = ()) -> Obj:
    """New objects, and updates that change a field.

    Args:
        paths: of fields, for example `spec` or `metadata.labels`.
        new: expressions, of which one has to hold for a new object; none: every new object.
    """
    changes = [changed(path) for path in paths]
    if not new:
        return condition("new-or-changed", IS_NEW, *changes)
    expression = f"{IS_NEW} ? {' || '.join(new)} : {' || '.join(changes)}"
    return condition("new-or-changed", expression)


IS_NEW = f"{OLD} == null"
"""Holds for an object that is created."""


def changed(path: str) -> str:
    """Holds when an update sets, removes or changes a field; absent and empty differ."""
    return f"{_value(NEW, path)} != {_value(OLD, path)}"


def unlike(path: str, prefix: str, values: Mapping[str, str]) -> str:
    """Holds for an object with another key, or another value, of labels or annotations.

    Args:
        path: of the labels or annotations.
        prefix: of the keys that count.
        values: what is expected: keys, and regular expressions that their values match.
    """
    field = f"{NEW}.{path}"
    fits = [f"key == '{key}' && {field}[key].matches(r'{text}')" for key, text in values.items()]
    other = f"key.startsWith('{prefix}')" + "".join(f" && !({each})" for each in fits)
    return f"{present(NEW, path)} && {field}.exists(key, {other})"


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
