"""Finds and loads a kubeconfig, or a pod's service account, into an `Endpoint`.

Identity providers (`auth-provider`) are kubernetes_asyncio's, which is imported only for a user who
has one. Everything else is ours.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import attrs

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
from kueuelib.runtime.exec_plugin import EXEC_TIMEOUT, ExecCredential, ask_plugin
from kueuelib.runtime.kubeconfig_file import decoded, merge, select

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
        told = await self._authenticate(name, cluster, user)
        if told is not None and tls.cert_data is None and tls.cert_file is None:
            tls = attrs.evolve(tls, cert_data=told.cert_data, key_data=told.key_data)
        url = check_url(str(cluster.get("server") or ""), self._subject)
        return Endpoint(
            url=url,
            tls=client_tls(tls, self._subject) if url.startswith("https") else None,
            server_hostname=cluster.get("tls-server-name"),
            proxy=proxy_for(url, cluster.get("proxy-url"), self._subject),
            authorization=_bearer(told.token) if told else _header(user, self._subject),
            headers=_impersonation(user),
            refresh_at=self._refresh_at(tls, user, told.expiry if told else None),
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
