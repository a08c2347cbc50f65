"""Posts reviews to webhooks over HTTPS."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded.conversion import HookFailed

ANSWER_LIMIT = 16 * 2**20
CONTEXTS_KEPT = 64


class HookClient:
    """One session for all webhooks; connections are kept open between calls."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        """Closes all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, client: Mapping[str, Any], body: Obj, *, seconds: float) -> Obj:
        """The decoded answer.

        Args:
            client: the `clientConfig` of the webhook.
            body: the review.
            seconds: after which it is given up.

        Raises:
            HookFailed: no answer, or none that can be read.
        """
        url = self._address(client, seconds)
        context = self._context(client.get("caBundle") or "")
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        try:
            async with self._session.post(
                url,
                data=orjson.dumps(body),
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                ssl=context,
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                raw = await response.content.read(ANSWER_LIMIT + 1)
                while not response.content.at_eof() and len(raw) <= ANSWER_LIMIT:
                    raw += await response.content.read(ANSWER_LIMIT)
                status = response.status
        except TimeoutError as error:
            raise HookFailed(f'Post "{url}": context deadline exceeded') from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise HookFailed(f'Post "{url}": {_reason(error)}') from error
        if len(raw) > ANSWER_LIMIT:
            raise HookFailed(f'Post "{url}": the answer is longer than {ANSWER_LIMIT} bytes')
        if status != 200:
            text = raw[:200].decode(errors="replace").strip()
            raise HookFailed(f"the server responded with the status code {status}: {text}")
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise HookFailed(f"couldn't get version/kind; json parse error: {error}") from error
        if not isinstance(answer, dict):
            raise HookFailed("expected a review, the answer is no object")
        return answer

    @staticmethod
    def _address(client: Mapping[str, Any], seconds: float) -> str:
        url = client.get("url")
        if isinstance(url, str) and url.startswith("https://"):
            return f"{url}{'&' if '?' in url else '?'}timeout={seconds:g}s"
        service = client.get("service")
        if service:
            host = f"{service.get('name')}.{service.get('namespace')}.svc"
            url = f"https://{host}:{service.get('port') or 443}{service.get('path') or '/'}"
            raise HookFailed(
                f'Post "{url}?timeout={seconds:g}s": service "{service.get("name")}" not found: '
                "this server has no cluster network; give the webhook by url"
            )
        raise HookFailed(f"url: {url!r} is not an https address")

    def _context(self, bundle: str) -> ssl.SSLContext:
        found = self._contexts.get(bundle)
        if found is None:
            try:
                pem = base64.b64decode(bundle).decode() if bundle else None
                found = ssl.create_default_context(cadata=pem)
            except (binascii.Error, UnicodeDecodeError, ssl.SSLError, ValueError) as error:
                raise HookFailed(f"unable to load root certificates: {error}") from error
            if len(self._contexts) >= CONTEXTS_KEPT:
                self._contexts.clear()
            self._contexts[bundle] = found
        return found


def _reason(error: Exception) -> str:
    """Why a call has failed, in the words of clients in Go; users match on some of them."""
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
    """Of a connection that was tried at several addresses, why the last one failed."""
    inner = getattr(error, "exceptions", ())
    return next((one.errno for one in reversed(inner) if getattr(one, "errno", None)), 0)


async def gather_first_failure(calls: list[Any]) -> None:
    """Awaits all calls together; raises the first failure in their order."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
