"""Where the API server is and how to speak to it: a value, from a loader or a configured client."""

from __future__ import annotations

import hashlib
import inspect
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeGuard
from urllib.parse import SplitResult, urlsplit

import anyio
import attrs

from kueuelib.errors import ConfigError
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock


@attrs.frozen
class Endpoint:
    """An API server's address with everything a request needs.

    Attributes:
        url: scheme, host, port and an optional path prefix, without a slash at the end.
        tls: the context for https, None for http.
        server_hostname: the name to verify instead of the one in the URL, or None.
        proxy: the URL of an HTTP proxy, or None.
        authorization: the value of the `Authorization` header, or None.
        headers: further headers of every request, for example impersonation.
        refresh_at: seconds since the epoch after which the credentials should be loaded again,
            or None when they never go stale by themselves.
        fingerprint: equal for two endpoints with the same certificates.
        source: what to name in error messages, for example the kubeconfig's path.
        namespace: the namespace of the context, or empty.
        context: the name of the context; empty where there are none.
    """

    url: str
    tls: ssl.SSLContext | None = attrs.field(default=None, eq=False)
    server_hostname: str | None = None
    proxy: str | None = None
    authorization: str | None = attrs.field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    refresh_at: float | None = None
    fingerprint: str = ""
    source: str = ""
    namespace: str = ""
    context: str = ""

    @property
    def route(self) -> tuple[str | None, ...]:
        """Equal for two endpoints that may share connections, whatever the source said."""
        return self.fingerprint, self.url, self.proxy, self.server_hostname


class EndpointSource(Protocol):
    """Loads the endpoint, as often as needed."""

    async def load(self, *, force: bool = False) -> Endpoint:
        """Read the configuration and get credentials.

        Args:
            force: get fresh credentials even when the present ones seem good (after a 401).

        Raises:
            ConfigError: the configuration cannot work.
        """
        ...


@attrs.frozen
class FixedSource:
    """An endpoint that never changes, for tests and for programs that build their own."""

    endpoint: Endpoint

    async def load(self, *, force: bool = False) -> Endpoint:
        """The endpoint."""
        del force
        return self.endpoint


@attrs.frozen
class TlsFiles:
    """What is needed to build a TLS context; bytes are PEM, paths name PEM files.

    Attributes:
        ca_data: authorities to trust.
        ca_file: file with authorities to trust; the system's are used when both are missing.
        cert_data: client certificate.
        key_data: its key.
        cert_file: file with the client certificate.
        key_file: file with its key.
        verify: whether the server's certificate is checked.
    """

    ca_data: bytes | None = None
    ca_file: str | None = None
    cert_data: bytes | None = attrs.field(default=None, repr=False)
    key_data: bytes | None = attrs.field(default=None, repr=False)
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


def client_tls(files: TlsFiles, subject: str) -> ssl.SSLContext:
    """The context of a client.

    Certificates are checked as strictly as other Kubernetes clients do, not as strictly as
    Python 3.13 does by default: many clusters' authorities lack key identifiers.

    Args:
        files: certificates and keys.
        subject: what to name in errors.

    Raises:
        ConfigError: a file is missing or is not a certificate or key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_authorities(context, files, subject)
    _load_client_certificate(context, files, subject)
    return context


def _load_authorities(context: ssl.SSLContext, files: TlsFiles, subject: str) -> None:
    if not files.verify:
        return
    try:
        if files.ca_data is not None:
            context.load_verify_locations(cadata=files.ca_data.decode("ascii"))
        elif files.ca_file is not None:
            context.load_verify_locations(cafile=files.ca_file)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        what = files.ca_file or "certificate-authority-data"
        raise ConfigError(
            subject,
            f"{what} holds no usable certificate ({error})",
            "put the cluster's certificate authority there, in PEM form",
        ) from error


def _load_client_certificate(context: ssl.SSLContext, files: TlsFiles, subject: str) -> None:
    cert, key = files.cert_data or files.cert_file, files.key_data or files.key_file
    if cert is None and key is None:
        return
    if cert is None or key is None:
        missing = "client-certificate" if cert is None else "client-key"
        raise ConfigError(
            subject, f"the user has no {missing}", "give both, or remove the other one"
        )
    try:
        # The ssl module reads keys from files only; these exist no longer than this call.
        with tempfile.TemporaryDirectory(prefix="kueuelib-") as folder:
            context.load_cert_chain(
                _as_file(cert, Path(folder, "cert")), _as_file(key, Path(folder, "key"))
            )
    except (OSError, ValueError) as error:
        raise ConfigError(
            subject,
            f"the client certificate or its key cannot be used ({error})",
            "check client-certificate and client-key of the user",
        ) from error


def fingerprint(url: str, tls: TlsFiles) -> str:
    """Equal for the same server with the same certificates; files count by time and size."""
    digest = hashlib.sha256(repr((url, tls.verify)).encode())
    for data in (tls.ca_data, tls.cert_data, tls.key_data):
        digest.update(b"\0" + (data or b""))
    for name in (tls.ca_file, tls.cert_file, tls.key_file):
        digest.update(b"\0" + repr(name and file_stamp(Path(name))).encode())
    return digest.hexdigest()


def file_stamp(path: Path) -> tuple[int, int]:
    """Time and size of a file; zeros for one that cannot be read."""
    try:
        info = path.stat()
    except OSError:
        return (0, 0)
    return (info.st_mtime_ns, info.st_size)


def _as_file(content: bytes | str, path: Path) -> str:
    if isinstance(content, str):
        return content
    path.touch(0o600)
    path.write_bytes(content)
    return str(path)


def check_url(url: str, subject: str) -> str:
    """The URL without a slash at the end.

    Raises:
        ConfigError: it is not an http or https URL with a host.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            subject,
            f"the server {url!r} is not an http or https URL",
            "correct the cluster's server",
        )
    return url.rstrip("/")


def proxy_for(
    url: str, configured: str | None, subject: str, env: Mapping[str, str] | None = None
) -> str | None:
    """The HTTP proxy for a server, resolved once.

    Args:
        url: the server.
        configured: the kubeconfig's `proxy-url`, which wins over the environment.
        subject: what to name in errors.
        env: proxies by scheme plus `no`; the environment's when None.

    Raises:
        ConfigError: the proxy speaks another protocol than HTTP.
    """
    parts = urlsplit(url)
    proxy = configured or _environment_proxy(parts, env)
    if proxy and urlsplit(proxy).scheme not in {"http", "https"}:
        raise ConfigError(
            subject, f"the proxy {proxy!r} is not an HTTP proxy", "use an http:// or https:// proxy"
        )
    return proxy or None


def _environment_proxy(server: SplitResult, env: Mapping[str, str] | None) -> str | None:
    if env is None and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None  # as for most programs, which need not import modules for HTTP and mail
    from urllib.request import (  # type: ignore[attr-defined]
        getproxies_environment,
        proxy_bypass_environment,
    )

    proxies = dict(getproxies_environment() if env is None else env)
    bypassed = proxy_bypass_environment(server.hostname or "", proxies)
    return None if bypassed else proxies.get(server.scheme)


def named_proxy(proxy: str, scheme: str) -> str:
    """A proxy in words: its address without credentials, and the variable that names it.

    Args:
        proxy: its URL.
        scheme: that of the server.
    """
    parts = urlsplit(proxy)
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    names = (name for name in os.environ if name.lower() == f"{scheme}_proxy")
    variable = next((name for name in names if os.environ[name] == proxy), "")
    return f"{place} of {variable or 'the configuration'}"


# ---- the server and the credentials that an `ApiClient` or a `ClientConfiguration` names
# --------------- Those of kubernetes_asyncio, and of other packages with classes of the same form.

REFRESH = 1.0
"""Seconds after which the configuration is read, and its hook called, again."""
HOOK_TIMEOUT = 30.0
"""Seconds that the hook may take, unless calls have less."""
_GENERATED_AGENT = "OpenAPI-Generator/"


class ClientConfiguration(Protocol):
    """The configuration of a generated client: `kubernetes_asyncio.client.Configuration`."""

    @property
    def host(self) -> str | None:
        """The URL of the server."""
        ...

    @property
    def get_api_key_with_prefix(self) -> Any:
        """Calls the hook that refreshes the token, and returns the token."""
        ...


class Configured(Protocol):
    """A generated client: `kubernetes_asyncio.client.ApiClient`."""

    @property
    def configuration(self) -> ClientConfiguration:
        """Where the server is, and the credentials."""
        ...

    @property
    def default_headers(self) -> Any:
        """Headers of every request."""
        ...


def is_configured(given: object) -> TypeGuard[Configured]:
    """Whether a value is a generated client."""
    return is_configuration(getattr(given, "configuration", None))


def is_configuration(given: object) -> TypeGuard[ClientConfiguration]:
    """Whether a value is the configuration of a generated client."""
    return all(hasattr(given, each) for each in ("host", "api_key", "get_api_key_with_prefix"))


class ConfigurationSource:
    """Reads a configuration again every second, and asks the hook that refreshes its token.

    Args:
        given: the configuration, or the client that has one.
        clock: decides when to read again.
        patience: seconds that the hook may take.

    Attributes:
        configuration: what is read.
    """

    def __init__(
        self,
        given: Configured | ClientConfiguration,
        *,
        clock: Clock = SYSTEM_CLOCK,
        patience: float = HOOK_TIMEOUT,
    ) -> None:
        self._client = given if is_configured(given) else None
        self.configuration: Any = given.configuration if is_configured(given) else given
        self._clock = clock
        self._patience = patience
        self._subject = f"{type(given).__module__.partition('.')[0]} {type(given).__name__}"
        self._tls: tuple[str, ssl.SSLContext | None] = ("", None)

    @property
    def user_agent(self) -> str | None:
        """The `User-Agent` that the client's user has set; None: none."""
        headers = {} if self._client is None else dict(self._client.default_headers)
        agent: str = headers.get("User-Agent") or _GENERATED_AGENT
        return None if agent.startswith(_GENERATED_AGENT) else agent

    async def load(self, *, force: bool = False) -> Endpoint:
        """Read the configuration, and get a token."""
        del force  # the hook is asked each time
        configuration = self.configuration
        url = check_url(str(configuration.host or ""), self._subject)
        data = getattr(configuration, "ca_cert_data", None)
        files = TlsFiles(
            ca_data=data.encode() if isinstance(data, str) else data,
            ca_file=configuration.ssl_ca_cert,
            cert_file=configuration.cert_file,
            key_file=configuration.key_file,
            verify=bool(configuration.verify_ssl),
        )
        digest = fingerprint(url, files)
        if self._tls[0] != digest:
            tls = client_tls(files, self._subject) if url.startswith("https") else None
            self._tls = (digest, tls)
        return Endpoint(
            url=url,
            tls=self._tls[1],
            server_hostname=configuration.tls_server_name,
            proxy=proxy_for(url, configuration.proxy, self._subject),
            authorization=await self._authorization(),
            headers=self._headers(),
            refresh_at=self._clock.now() + REFRESH,
            fingerprint=digest,
            source=self._subject,
        )

    async def _authorization(self) -> str | None:
        configuration = self.configuration
        try:
            header = configuration.get_api_key_with_prefix("BearerToken", "authorization")
            if inspect.isawaitable(header):
                with anyio.fail_after(self._patience):
                    header = await header
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                self._subject,
                f"its refresh_api_key_hook failed ({error!r:.200})",
                "correct the hook",
            ) from error
        if header:
            return " ".join(str(header).split())
        return str(configuration.get_basic_auth_token()) if configuration.username else None

    def _headers(self) -> tuple[tuple[str, str], ...]:
        if self.configuration.proxy_headers:
            raise ConfigError(
                self._subject,
                "has proxy_headers, which are not sent",
                "write the proxy's user and password into its URL",
            )
        if self._client is None:
            return ()
        given = {**self._client.default_headers}
        if cookie := getattr(self._client, "cookie", None):
            given["Cookie"] = cookie
        return tuple((n, str(v)) for n, v in given.items() if n.lower() != "user-agent")
