"""Posts reviews to webhooks over HTTPS."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.dialling import Contexts, Services, service_session
from kueuelib.embedded.conversion import HookFailed

HTTPS = 443


class HookClient:
    """Calls webhooks; connections are kept open between calls.

    Attributes:
        services: finds webhooks that are named by a Service.
    """

    def __init__(self) -> None:
        self.services: Services | None = None
        self._session: aiohttp.ClientSession | None = None
        self._cluster: aiohttp.ClientSession | None = None
        self._contexts = Contexts()

    async def close(self) -> None:
        """Closes all connections."""
        for session in (self._session, self._cluster):
            if session is not None:
                await session.close()
        self._session = self._cluster = None

    async def call(self, client: Mapping[str, Any], body: Obj, *, seconds: float) -> Obj:
        """The decoded answer.

        Args:
            client: the `clientConfig` of the webhook.
            body: the review.
            seconds: the time limit.

        Raises:
            HookFailed: there was no answer, or it is unreadable.
        """
        url = self._address(client, seconds)
        context = self._contexts.trusting(client.get("caBundle") or "")
        session = self._session_for(client, url)
        try:
            # The deadline of aiohttp loses a cancellation that comes at the same moment.
            async with (
                asyncio.timeout(seconds),
                session.post(
                    url,
                    data=orjson.dumps(body),
                    headers={"Content-Type": "application/json", "Accept": "application/json"},
                    ssl=context,
                    timeout=aiohttp.ClientTimeout(total=None),
                    allow_redirects=False,
                ) as response,
            ):
                raw, status = await response.read(), response.status
        except TimeoutError as error:
            raise HookFailed(f'Post "{url}": context deadline exceeded') from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise HookFailed(f'Post "{url}": {_reason(error)}') from error
        if status != 200:
            text = raw[:200].decode(errors="replace").strip()
            raise HookFailed(f"the server responded with the status code {status}: {text}")
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise HookFailed(f"couldn't get version/kind; json parse error: {error}") from error
        if not isinstance(answer, dict):
            raise HookFailed("expected a review, the answer is not an object")
        return answer

    @staticmethod
    def _address(client: Mapping[str, Any], seconds: float) -> str:
        url = client.get("url")
        if isinstance(url, str) and url.startswith("https://"):
            return f"{url}{'&' if '?' in url else '?'}timeout={seconds:g}s"
        service = client.get("service")
        if service:
            host = f"{service.get('name')}.{service.get('namespace')}.svc"
            path = service.get("path") or "/"
            slash = "" if path.startswith("/") else "/"
            port = service.get("port") or HTTPS
            return f"https://{host}:{port}{slash}{path}?timeout={seconds:g}s"
        raise HookFailed(f"url: {url!r} is not an https address")

    def _session_for(self, client: Mapping[str, Any], url: str) -> aiohttp.ClientSession:
        """The session for the host of the URL.

        Raises:
            HookFailed: the service of the webhook has no address.
        """
        service = client.get("service")
        if not service or client.get("url"):
            if self._session is None:
                self._session = aiohttp.ClientSession(trust_env=False)
            return self._session
        assert self.services is not None, "there are services once the server has started"
        try:
            self.services.address(
                service.get("namespace") or "",
                service.get("name") or "",
                service.get("port") or HTTPS,
            )
        except HookFailed as error:
            raise HookFailed(f'Post "{url}": {error}') from error
        if self._cluster is None:
            self._cluster = service_session(self.services)
        return self._cluster


def _reason(error: Exception) -> str:
    """Why a call has failed, in the words of Go clients, some of which users match."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        text = getattr(error.certificate_error, "verify_message", "") or "certificate is not valid"
        return f"tls: failed to verify certificate: x509: {text}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return f"tls: {getattr(error.os_error, 'reason', None) or 'handshake failure'}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or _inner_number(error.os_error)
        text = os.strerror(number).lower() if number else "cannot connect"
        return f"dial tcp {error.host}:{error.port}: connect: {text}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    if isinstance(error, aiohttp.ClientPayloadError):
        return "unexpected EOF"
    return "malformed HTTP response"


def _inner_number(error: OSError) -> int:
    """The error number of the last of several addresses."""
    inner = getattr(error, "exceptions", ())
    return next((one.errno for one in reversed(inner) if getattr(one, "errno", None)), 0)


async def gather_first_failure(calls: list[Any]) -> None:
    """Awaits all calls together; raises the first failure in their order."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
