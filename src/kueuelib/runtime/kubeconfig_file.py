"""Reads kubeconfig files: merged as kubectl does, with messages that name file, place and fix."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kueuelib.errors import ConfigError
from kueuelib.runtime.yaml_files import documents, read_text

_FILE_KEYS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def merge(paths: tuple[Path, ...]) -> dict[str, Any]:
    """Several kubeconfig files as one, relative paths made absolute.

    Raises:
        ConfigError: a file cannot be read or has another shape.
    """
    merged: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for path in paths:
        document = _read(path)
        merged["current-context"] = merged["current-context"] or document.get("current-context")
        for section, single in (
            ("clusters", "cluster"),
            ("users", "user"),
            ("contexts", "context"),
        ):
            for name, value in _entries(path, document, section, single):
                _make_absolute(value, path.parent)
                merged[section].setdefault(name, value)
    return merged


def select(
    merged: Mapping[str, Any], context: str | None, subject: str
) -> tuple[str, dict[str, Any], dict[str, Any], str]:
    """Name, cluster, user and namespace of a context.

    Raises:
        ConfigError: the context, its cluster or its user does not exist.
    """
    name = context or merged["current-context"]
    contexts = merged["contexts"]
    listed = ", ".join(sorted(contexts)) or "none"
    if not name:
        raise ConfigError(subject, "current-context is not set", f"set it (contexts: {listed})")
    if name not in contexts:
        raise ConfigError(subject, f"there is no context {name!r}", f"use one of: {listed}")
    entry = contexts[name]
    cluster = merged["clusters"].get(entry.get("cluster"))
    if cluster is None:
        raise ConfigError(
            subject,
            f"context {name!r} names the cluster {entry.get('cluster')!r}, which is not listed",
            "add it under clusters",
        )
    user: dict[str, Any] | None = {}
    if entry.get("user"):
        user = merged["users"].get(entry["user"])
    if user is None:
        raise ConfigError(
            subject,
            f"context {name!r} names the user {entry['user']!r}, which is not listed",
            "add the user under users",
        )
    return str(name), cluster, user, str(entry.get("namespace") or "")


def _read(path: Path) -> dict[str, Any]:
    fix = "repair the kubeconfig, or name another one"
    contents = documents(read_text(path, fix), str(path), fix)
    document = contents[0] if len(contents) == 1 else None
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        raise ConfigError(str(path), "is not a kubeconfig (kind: Config)", fix)
    return document


def _entries(
    path: Path, document: Mapping[str, Any], section: str, single: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    listed = document.get(section) or []
    if not isinstance(listed, list):
        raise ConfigError(
            str(path), f"{section} is not a list", f"make it a list of named {section}"
        )
    for index, entry in enumerate(listed):
        value = (entry.get(single) or {}) if isinstance(entry, dict) else None
        if not isinstance(value, dict) or not isinstance(entry.get("name"), str):
            raise ConfigError(
                str(path),
                f"{section}[{index}] is malformed",
                f"it needs a name and a mapping named {single}",
            )
        yield entry["name"], dict(value)


def _make_absolute(value: dict[str, Any], folder: Path) -> None:
    for key in _FILE_KEYS:
        if isinstance(value.get(key), str) and value[key]:
            value[key] = str(folder.absolute() / value[key])
    plugin = value.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
        value["exec"] = {**plugin, "command": str(folder.absolute() / plugin["command"])}


def decoded(value: Mapping[str, Any], key: str, subject: str) -> bytes | None:
    """The bytes of a field that holds base64, or None when it is missing.

    Raises:
        ConfigError: it is not base64.
    """
    text = value.get(key)
    if not text:
        return None
    try:
        return base64.b64decode("".join(str(text).split()), validate=True)
    except binascii.Error as error:
        raise ConfigError(
            subject, f"{key} is not base64 ({error})", "encode the PEM text with base64"
        ) from error
