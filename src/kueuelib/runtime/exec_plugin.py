"""Credentials of a program that a kubeconfig names: `client.authentication.k8s.io`, v1 and v1beta1.

The protocol is that of client-go: an `ExecCredential` in the environment says what is asked for,
and one on stdout has the answer.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from kueuelib.api.meta import parse_time
from kueuelib.errors import ConfigError

EXEC_TIMEOUT = 60.0
"""Seconds that a plug-in may take."""
_GROUP: Final = "client.authentication.k8s.io"
_VERSIONS: Final = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_MODES: Final = ("Never", "IfAvailable", "Always")
_FIX: Final = "correct exec of the user of the context"


@attrs.frozen
class ExecCredential:
    """What a plug-in answered.

    Attributes:
        token: the bearer token, or None.
        cert_data: the client certificate, PEM, or None.
        key_data: its key.
        expiry: when they are no longer valid, in seconds since the epoch; None: they do not say.
    """

    token: str | None = attrs.field(default=None, repr=False)
    cert_data: bytes | None = attrs.field(default=None, repr=False)
    key_data: bytes | None = attrs.field(default=None, repr=False)
    expiry: float | None = None


async def ask_plugin(plugin: Any, cluster: Mapping[str, Any], subject: str) -> ExecCredential:
    """Run a plug-in and read its answer.

    Args:
        plugin: `exec` of the user.
        cluster: the cluster of the context, which the plug-in gets if it wants to.
        subject: what to name in errors.

    Raises:
        ConfigError: the plug-in is not described well, cannot be run, fails, or answers something
            else.
    """
    version, command, interactive = _checked(plugin, subject)
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = _told_of(cluster)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    named = {str(each["name"]): str(each.get("value", "")) for each in plugin.get("env") or ()}
    environment = {**os.environ, **named, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    output = await _run(command, environment, plugin, subject, interactive=interactive)
    return _read(output, version, subject)


def _checked(plugin: Any, subject: str) -> tuple[str, list[str], bool]:
    """The version, the command line, and whether the plug-in may ask a person."""
    if not isinstance(plugin, Mapping):
        raise ConfigError(subject, "exec of the user is not a mapping", _FIX)
    for key in ("apiVersion", "command"):
        if not plugin.get(key):
            raise ConfigError(subject, f"exec: missing key {key!r}", _FIX)
    version, arguments = str(plugin["apiVersion"]), plugin.get("args") or []
    if version not in _VERSIONS:
        known = " or ".join(_VERSIONS)
        raise ConfigError(subject, f"exec: apiVersion {version!r} is not known", f"use {known}")
    named = plugin.get("env") or []
    if not isinstance(arguments, list):
        raise ConfigError(subject, "exec: args is not a list", _FIX)
    if not isinstance(named, list) or not all(isinstance(e, dict) and "name" in e for e in named):
        raise ConfigError(subject, "exec: env is not a list of name and value", _FIX)
    mode = plugin.get("interactiveMode") or "IfAvailable"
    if mode not in _MODES:
        problem = f"exec: interactiveMode {mode!r} is not known"
        raise ConfigError(subject, problem, f"use one of {', '.join(_MODES)}")
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not terminal:
        problem = "exec: the plug-in wants to ask somebody, but stdin is not a terminal"
        raise ConfigError(subject, problem, "run in a terminal, or use a plug-in that need not ask")
    return version, [str(plugin["command"]), *map(str, arguments)], mode != "Never" and terminal


def _told_of(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster of a kubeconfig as `ExecCredential.spec.cluster`."""
    told: dict[str, Any] = {"server": cluster.get("server") or ""}
    for key in ("tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression"):
        if cluster.get(key):
            told[key] = cluster[key]
    if cluster.get("certificate-authority-data"):
        told["certificate-authority-data"] = cluster["certificate-authority-data"]
    elif path := cluster.get("certificate-authority"):
        told["certificate-authority-data"] = base64.b64encode(Path(path).read_bytes()).decode()
    extensions = cluster.get("extensions") or ()
    for each in extensions:
        if each.get("name") == f"{_GROUP}/exec":
            told["config"] = each.get("extension")
    return told


async def _run(
    command: list[str],
    environment: Mapping[str, str],
    plugin: Mapping[str, Any],
    subject: str,
    *,
    interactive: bool,
) -> bytes:
    hint = str(plugin.get("installHint") or "").strip()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if interactive else asyncio.subprocess.PIPE,
        )
    except OSError as error:
        problem = f"exec: {command[0]} cannot be run ({error.strerror or error})"
        raise ConfigError(subject, problem, _line(hint) or _FIX) from error
    try:
        with anyio.fail_after(EXEC_TIMEOUT):
            output, complaint = await process.communicate()
    except TimeoutError as error:
        raise ConfigError(
            subject,
            f"the credentials plug-in did not answer within {EXEC_TIMEOUT:.0f} s",
            "run the exec command of the user by hand",
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            with anyio.CancelScope(shield=True):
                await process.wait()
    if process.returncode:
        said = _line((complaint or b"").decode("utf-8", "replace"))
        problem = f"exec: process returned {process.returncode}{f'. {said}' if said else ''}"
        raise ConfigError(subject, problem, "run the exec command of the user by hand")
    return output


def _read(output: bytes, version: str, subject: str) -> ExecCredential:
    def wrong(problem: str) -> ConfigError:
        fix = "run the exec command of the user by hand"
        return ConfigError(subject, f"exec: the plug-in's answer {problem}", fix)

    try:
        answer = json.loads(output)
    except ValueError as error:
        raise wrong(f"is not JSON ({error})") from error
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise wrong("is not an ExecCredential")
    if answer.get("apiVersion") != version:
        raise wrong(f"has the apiVersion {answer.get('apiVersion')!r} instead of {version!r}")
    status = answer.get("status")
    if not isinstance(status, dict):
        raise wrong("has no status")
    token, cert, key = (
        status.get(name) for name in ("token", "clientCertificateData", "clientKeyData")
    )
    if not token and not cert and not key:
        raise wrong("has neither a token nor a client certificate")
    if bool(cert) != bool(key):
        raise wrong("has a client certificate or a key, but not both")
    expiry = status.get("expirationTimestamp")
    try:
        until = None if expiry is None else parse_time(str(expiry))
    except ValueError as error:
        raise wrong(f"expires at {expiry!r}, which is not a time") from error
    return ExecCredential(
        "".join(str(token).split()) if token else None,
        str(cert).encode() if cert else None,
        str(key).encode() if key else None,
        until,
    )


def _line(text: str) -> str:
    return " ".join(text.split())
