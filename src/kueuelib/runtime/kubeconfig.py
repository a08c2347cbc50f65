"""Finds and loads a kubeconfig, or a pod's service account, into an `Endpoint`.

Identity providers (`auth-provider`) are kubernetes_asyncio's, which is imported only for a user who
has one. Everything else is ours.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from kueuelib.api.meta import parse_time
from kueuelib.errors import ConfigError
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.endpoint import (
    Endpoint,
    EndpointSource,
    TlsFiles,
    check_url,
    client_tls,
    file_stamp,
    fingerprint,
    proxy_for,
)
from kueuelib.runtime.yaml_files import documents, read_text

# Reads kubeconfig files: merged as kubectl does, with messages that name file, place and fix.

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


# Credentials of a program that a kubeconfig names: `client.authentication.k8s.io`, v1 and v1beta1.
# The protocol is that of client-go: an `ExecCredential` in the environment says what is asked for,
# and one on stdout has the answer.

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
        spec["cluster"] = _cluster_info(cluster)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    named = {str(each["name"]): str(each.get("value", "")) for each in plugin.get("env") or ()}
    environment = {**os.environ, **named, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    output = await _run(command, environment, plugin, subject, interactive=interactive)
    return _read_credential(output, version, subject)


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


def _cluster_info(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster of a kubeconfig as `ExecCredential.spec.cluster`."""
    info: dict[str, Any] = {"server": cluster.get("server") or ""}
    for key in ("tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression"):
        if cluster.get(key):
            info[key] = cluster[key]
    if cluster.get("certificate-authority-data"):
        info["certificate-authority-data"] = cluster["certificate-authority-data"]
    elif path := cluster.get("certificate-authority"):
        info["certificate-authority-data"] = base64.b64encode(Path(path).read_bytes()).decode()
    extensions = cluster.get("extensions") or ()
    for each in extensions:
        if each.get("name") == f"{_GROUP}/exec":
            info["config"] = each.get("extension")
    return info


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


def _read_credential(output: bytes, version: str, subject: str) -> ExecCredential:
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


# --------------------------------------------------------------------------------------------------

FILE_REFRESH = 60.0
"""Seconds after which files with tokens and certificates are read again."""
_MOUNT = "mount the service account of the pod"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find_source(
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> EndpointSource:
    """Where the endpoint comes from: the file given, `$KUBECONFIG`, `~/.kube/config`, the pod.

    Args:
        kubeconfig: a file that must exist.
        context: the context to use instead of the file's current one.
        env: the environment; the process's when None.
        clock: decides when credentials are stale.

    Raises:
        ConfigError: there is no configuration.
    """
    env = os.environ if env is None else env
    if kubeconfig is not None:
        path = _expanded(kubeconfig)
        if not path.is_file():
            problem = "is not a file" if path.exists() else "there is no such file"
            raise ConfigError(str(path), problem, "give the path of an existing kubeconfig")
        return KubeconfigSource((path,), context, clock=clock)
    if listed := env.get("KUBECONFIG"):
        paths = tuple(_expanded(part) for part in listed.split(os.pathsep) if part)
        files = tuple(path for path in paths if path.is_file())
        if not files:
            raise ConfigError(
                f"$KUBECONFIG ({listed})", "there is no such file", "correct or unset KUBECONFIG"
            )
        return KubeconfigSource(files, context, clock=clock)
    home = _expanded("~/.kube/config")
    if home.is_file():
        return KubeconfigSource((home,), context, clock=clock)
    if env.get("KUBERNETES_SERVICE_HOST"):
        return InClusterSource(dict(env), clock=clock)
    raise ConfigError(
        str(home),
        "there is no kubeconfig, and this is not a pod of a cluster",
        "name one with $KUBECONFIG, --kubeconfig or kubeconfig=",
    )


def _expanded(path: str | os.PathLike[str]) -> Path:
    """The path with the home directory for `~`; unchanged for a user who has none."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - that of pathlib fails for such a user


class InClusterSource:
    """The service account of the pod this process runs in; read again every minute.

    Args:
        env: the environment with the server's host and port.
        clock: decides when to read again.
        token_file: the token, instead of the usual path.
        ca_file: the authority, instead of the usual path.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        clock: Clock = SYSTEM_CLOCK,
        token_file: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._env = env
        self._clock = clock
        self._token_file = token_file
        self._ca_file = ca_file

    async def load(self, *, force: bool = False) -> Endpoint:
        """Read token and authority."""
        del force
        token_file = Path(self._token_file or _SERVICE_ACCOUNT / "token")
        ca_file = self._ca_file or str(_SERVICE_ACCOUNT / "ca.crt")
        subject = str(token_file.parent)
        token, url = _token(token_file, subject, _MOUNT), _server(self._env, subject)
        tls = TlsFiles(ca_file=ca_file)
        return Endpoint(
            url=url,
            tls=client_tls(tls, subject),
            proxy=proxy_for(url, None, subject),
            authorization=f"Bearer {token}",
            refresh_at=self._clock.now() + FILE_REFRESH,
            fingerprint=fingerprint(url, tls),
            source="service account",
            namespace=_first_line(Path(subject, "namespace")),
        )


class KubeconfigSource:
    """One or more kubeconfig files, merged as kubectl does: the first file that sets a value wins.

    Args:
        paths: existing files.
        context: the context to use instead of the current one.
        clock: decides when credentials are stale.
    """

    def __init__(
        self, paths: tuple[Path, ...], context: str | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._paths = paths
        self._context = context
        self._clock = clock
        self._subject = os.pathsep.join(map(str, paths))
        self._stamp: tuple[tuple[int, int], ...] = ()
        self._merged: dict[str, Any] = {}

    async def load(self, *, force: bool = False) -> Endpoint:
        """Read the files if they changed, and get credentials."""
        stamp = tuple(file_stamp(path) for path in self._paths)
        if force or stamp != self._stamp or not self._merged:
            # Kept between loads because identity providers hand out a new refresh token each time.
            self._merged, self._stamp = merge(self._paths), stamp
        name, cluster, user, namespace = select(self._merged, self._context, self._subject)
        tls = _tls_files(cluster, user, self._subject)
        answer = await self._authenticate(name, cluster, user)
        if answer is not None and tls.cert_data is None and tls.cert_file is None:
            tls = attrs.evolve(tls, cert_data=answer.cert_data, key_data=answer.key_data)
        url = check_url(str(cluster.get("server") or ""), self._subject)
        return Endpoint(
            url=url,
            tls=client_tls(tls, self._subject) if url.startswith("https") else None,
            server_hostname=cluster.get("tls-server-name"),
            proxy=proxy_for(url, cluster.get("proxy-url"), self._subject),
            authorization=_bearer(answer.token) if answer else _header(user, self._subject),
            headers=_impersonation(user),
            refresh_at=self._refresh_at(tls, user, answer.expiry if answer else None),
            fingerprint=fingerprint(url, tls),
            source=self._subject,
            namespace=namespace,
            context=name,
        )

    async def _authenticate(
        self, name: str, cluster: Mapping[str, Any], user: dict[str, Any]
    ) -> ExecCredential | None:
        """What the program or the provider of a user says; None for a user with neither."""
        if "auth-provider" in user:
            return await self._ask_provider(name, cluster, user)
        if "exec" in user:
            return await ask_plugin(user["exec"], cluster, self._subject)
        return None

    async def _ask_provider(
        self, name: str, cluster: Mapping[str, Any], user: dict[str, Any]
    ) -> ExecCredential:
        """Let kubernetes_asyncio get a token; it is imported as a whole, 45 MB."""
        config: Any = importlib.import_module("kubernetes_asyncio.client").Configuration()
        loading: Any = importlib.import_module("kubernetes_asyncio.config.kube_config")
        document = {
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "clusters": [{"name": name, "cluster": {"server": cluster.get("server") or "-"}}],
            "users": [{"name": name, "user": _without_certificates(user)}],
        }
        try:
            loader = loading.KubeConfigLoader(document, config_base_path="")
            with anyio.fail_after(EXEC_TIMEOUT):
                await loader.load_and_set(config)
            header = await config.get_api_key_with_prefix("BearerToken")
        except TimeoutError as error:
            problem = f"the identity provider did not answer within {EXEC_TIMEOUT:.0f} s"
            fix = "correct auth-provider of the user"
            raise ConfigError(self._subject, problem, fix) from error
        except loading.ConfigException as error:
            text = str(error).removeprefix("Invalid kube-config file. ").rstrip(".")
            raise ConfigError(self._subject, text, "correct the user of the context") from error
        except (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(
                self._subject,
                f"no credentials from the user of context {name!r} ({error})",
                "correct the user of the context",
            ) from error
        token = str(header or "").removeprefix("Bearer").strip()
        if not token and not any(each.startswith("client-") for each in user):
            problem = f"auth-provider {dict(user['auth-provider']).get('name')!r} gives no token"
            fix = "use an exec plug-in; of auth-providers, only oidc and gcp are known"
            raise ConfigError(self._subject, problem, fix)
        return ExecCredential(token or None)

    def _refresh_at(
        self, tls: TlsFiles, user: Mapping[str, Any], expiry: float | None
    ) -> float | None:
        now = self._clock.now()
        if expiry is not None:
            return now + max(0.8 * (expiry - now), 10.0)
        in_files = tls.ca_file or tls.cert_file or user.get("tokenFile") or "auth-provider" in user
        return now + FILE_REFRESH if in_files and "exec" not in user else None


def _tls_files(cluster: Mapping[str, Any], user: Mapping[str, Any], subject: str) -> TlsFiles:
    return TlsFiles(
        ca_data=decoded(cluster, "certificate-authority-data", subject),
        ca_file=cluster.get("certificate-authority") or None,
        cert_data=decoded(user, "client-certificate-data", subject),
        key_data=decoded(user, "client-key-data", subject),
        cert_file=user.get("client-certificate") or None,
        key_file=user.get("client-key") or None,
        verify=not cluster.get("insecure-skip-tls-verify"),
    )


def _without_certificates(user: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in user.items() if not key.startswith("client-")}


def _impersonation(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    headers = [("Impersonate-User", str(user["as"]))] if user.get("as") else []
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(user["as-uid"])))
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    extra = user.get("as-user-extra") or {}
    headers += [(f"Impersonate-Extra-{key}", str(v)) for key, vs in extra.items() for v in vs]
    return tuple(headers)


def _bearer(token: str | None) -> str | None:
    return f"Bearer {token}" if token else None


def _header(user: Mapping[str, Any], subject: str) -> str | None:
    """The `Authorization` of a user with a token or a password."""
    if token := user.get("token"):
        return _bearer("".join(str(token).split()))
    if path := user.get("tokenFile"):
        return f"Bearer {_token(Path(path), subject, 'correct the user of the context')}"
    if "username" in user and "password" in user:
        pair = f"{user['username']}:{user['password']}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return None


def _token(path: Path, subject: str, fix: str) -> str:
    try:
        token = "".join(path.read_text(encoding="utf-8").split())  # files end with a newline
    except (OSError, ValueError) as error:
        raise ConfigError(subject, f"there is no token ({error})", fix) from error
    if not token:
        raise ConfigError(subject, f"the token in {path} is empty", fix)
    return token


def _server(env: Mapping[str, str], subject: str) -> str:
    host, port = (env.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        problem = "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set"
        raise ConfigError(subject, problem, "set them, as the kubelet does")
    return check_url(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", subject
    )


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
