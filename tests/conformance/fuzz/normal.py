"""Answers without what differs by chance, and how two of them differ."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b20(?:2[6-9]|3\d)-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_GO_TIME = re.compile(r"\b20(?:2[6-9]|3\d)-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \+0000 UTC")
_GO_DATE = re.compile(r"time\.Date\(20(?:2[6-9]|3\d)[^)]*\)")
_MADE = re.compile(r"\bgen-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_YAML = re.compile(r"[A-Za-z]+:(?: .*)?\n")
_ADDRESS = re.compile(r"\b10\.96\.\d+\.\d+\b")
_VERSION = re.compile(r'(\b[rR]esourceVersion"?: ?|Too large resource version: |current: )"?\d+"?')
_SCHEME = re.compile(r"\"(?:[\w./@-]+/)?pkg/api/legacyscheme/scheme\.go:\d+\"")
_SHOWN = re.compile(r'Invalid value: "(\{.*\})": ', re.DOTALL)
_POINTER = re.compile(r"\(0x[0-9a-f]+\)")
_AGE = re.compile(r"^\d+m?s$")
_CHANCE = {"resourceVersion": "RV", "continue": "CONTINUE", "selfLink": "LINK"}
_ACCOUNT = ("serviceAccount", "serviceAccountName")
"""Pods get one here; kube-apiserver runs without the plug-in that gives them one."""
_PORTS = ("nodePort", "healthCheckNodePort")


def _text(value: str) -> str:
    for pattern, name in (
        *((_UID, "UID"), (_TIME, "TIME"), (_GO_TIME, "TIME"), (_GO_DATE, "TIME")),
        *((_MADE, "gen-*"), (_ADDRESS, "ADDRESS"), (_POINTER, "(POINTER)")),
    ):
        value = pattern.sub(name, value)
    value = _SHOWN.sub(_sorted, value)
    return _VERSION.sub(r"\1RV", _SCHEME.sub('"SCHEME"', value))


def _sorted(match: re.Match[str]) -> str:
    """An object that is shown in a message, whatever the order of its fields."""
    try:
        shown = normal(json.loads(json.loads(f'"{match[1]}"')))
    except ValueError:
        return match[0]
    return f"Invalid value: {json.dumps(shown, sort_keys=True)}: "


def normal(value: Any, key: str = "") -> Any:
    """JSON data with names instead of times, versions, and what servers make up."""
    if isinstance(value, dict):
        if key == "columnDefinitions":
            value = {**value, "description": "DESCRIPTION"}
        fields = {_text(name): normal(inner, name) for name, inner in value.items()}
        for name in _ACCOUNT:
            if fields.get(name) == "default":
                del fields[name]
        prefix = fields.get("generateName")
        if prefix and str(fields.get("name")).startswith(str(prefix)):
            fields["name"] = f"{prefix}*"
        if isinstance(value.get("cells"), list):
            cells = fields["cells"]
            fields["cells"] = [
                "AGE" if isinstance(each, str) and _AGE.match(each) else each for each in cells
            ]
        return fields
    if isinstance(value, list):
        made = [normal(each, key) for each in value]
        return sorted(made, key=_shown) if key in ("managedFields", "causes") else made
    if isinstance(value, str):
        if key in _CHANCE and (key != "resourceVersion" or value.isdigit()):
            return _CHANCE[key]
        return _text(value)
    if key in _PORTS and isinstance(value, int) and 30000 <= value <= 32767:
        return "PORT"
    return value


def _shown(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def read(text: str, prefix: str = "") -> Any:
    """A body, normalised; of a list only the items of the episode.

    Args:
        text: the body.
        prefix: of the names of what is cluster-scoped; empty for other kinds.
    """
    try:
        data = json.loads(text)
    except ValueError:
        if not _YAML.match(text):
            return _text(text)
        data = yaml.load(text, yaml.BaseLoader)
    for items in ("items", "rows"):
        if prefix and isinstance(data, dict) and isinstance(data.get(items), list):
            data[items] = [each for each in data[items] if _is_own(each, prefix)]
    return normal(data)


def _is_own(item: Any, prefix: str) -> bool:
    meta = item.get("metadata") or item.get("object", {}).get("metadata") or {}
    return str(meta.get("name", "")).startswith(prefix)


def without_managers(value: Any) -> Any:
    """The same without `managedFields`."""
    value = copy.deepcopy(value)
    places = [value]
    while places:
        place = places.pop()
        if isinstance(place, dict):
            place.pop("managedFields", None)
            places.extend(place.values())
        elif isinstance(place, list):
            places.extend(place)
    return value


def differences(here: Any, there: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each place where two answers differ, with both values; indexes are not told."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted({*here, *there}):
            if key not in here or key not in there:
                yield f"{path}.{key}", here.get(key, "ABSENT"), there.get(key, "ABSENT")
            else:
                yield from differences(here[key], there[key], f"{path}.{key}")
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for one, other in zip(here, there, strict=True):
            yield from differences(one, other, f"{path}[]")
    elif here != there or type(here) is not type(there):
        yield path, here, there
