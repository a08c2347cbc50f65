"""Connects to other servers over HTTPS, by the names of their services."""

from __future__ import annotations

import base64
import binascii
import socket
import ssl
from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from kueuelib.embedded.admission.services import Services
from kueuelib.embedded.conversion import HookFailed

CONTEXTS_KEPT = 64


class _Resolver(AbstractResolver):
    """Resolves the names of services, which are also in their certificates."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._names = aiohttp.DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of `name.namespace.svc`, with the port to connect to."""
        name, namespace, _ = host.split(".", 2)
        try:
            address, target_port = self._services.address(namespace, name, port)
        except HookFailed as error:
            raise OSError(None, str(error)) from error
        results = await self._names.resolve(address, target_port, family)
        return [{**each, "hostname": host} for each in results]

    async def close(self) -> None:
        """Closes the resolver."""
        await self._names.close()


def service_session(services: Services) -> aiohttp.ClientSession:
    """A session whose URLs name services."""
    connector = aiohttp.TCPConnector(resolver=_Resolver(services), use_dns_cache=False)
    return aiohttp.ClientSession(connector=connector, trust_env=False)


class Contexts:
    """A cache of TLS contexts by the authorities that they trust.

    Args:
        prepare: called with each new one.
    """

    def __init__(self, prepare: Callable[[ssl.SSLContext], None] = lambda _: None) -> None:
        self._prepare = prepare
        self._known: dict[str | None, ssl.SSLContext] = {}

    def trusting(self, bundle: str | None) -> ssl.SSLContext:
        """A context for calls to a server.

        Args:
            bundle: base64 of the certificates that sign the server's; empty for those of the
                system, None to trust any server.

        Raises:
            HookFailed: there are no certificates in the bundle.
        """
        context = self._known.get(bundle)
        if context is None:
            try:
                pem = base64.b64decode(bundle).decode() if bundle else None
                context = ssl.create_default_context(cadata=pem)
            except (binascii.Error, UnicodeDecodeError, ssl.SSLError, ValueError) as error:
                raise HookFailed(f"unable to load root certificates: {error}") from error
            if bundle is None:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._prepare(context)
            if len(self._known) >= CONTEXTS_KEPT:
                self._known.clear()
            self._known[bundle] = context
        return context
