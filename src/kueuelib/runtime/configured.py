"""The server and the credentials that an `ApiClient` or a `Configuration` names.

Those of kubernetes_asyncio, and of other packages with classes of the same form.
"""

from __future__ import annotations

import inspect
import ssl
from typing import Any, Protocol, TypeGuard

import anyio

from kueuelib.errors import ConfigError
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.endpoint import (
    Endpoint,
    TlsFiles,
    check_url,
    client_tls,
    fingerprint,
    proxy_for,
)

REFRESH = 1.0
"""Seconds after which the configuration is read, and its hook called, again."""
HOOK_TIMEOUT = 30.0
"""Seconds that the hook may take, unless calls have less."""
_GENERATED_AGENT = "OpenAPI-Generator/"


class Configuration(Protocol):
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
    def configuration(self) -> Configuration:
        """Where the server is, and the credentials."""
        ...

    @property
    def default_headers(self) -> Any:
        """Headers of every request."""
        ...


def is_configured(given: object) -> TypeGuard[Configured]:
    """Whether a value is a generated client."""
    return is_configuration(getattr(given, "configuration", None))


def is_configuration(given: object) -> TypeGuard[Configuration]:
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
        given: Configured | Configuration,
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
