"""Connects to other servers over HTTPS, by the names of their Services."""

from __future__ import annotations

import base64
import binascii
import re
import socket
import ssl
from collections.abc import Callable, Mapping

import aiohttp
import attrs
from aiohttp.abc import AbstractResolver, ResolveResult

from kueuelib.api.kinds import SERVICES
from kueuelib.api.meta import ObjectKey
from kueuelib.embedded.admission.plugin import StoreReader
from kueuelib.embedded.builtins.fields import listed, section
from kueuelib.embedded.conversion import HookFailed
from kueuelib.errors import ConfigError

# ---- finds the addresses of webhooks that are named by a Service, without a cluster network ------

Address = tuple[str, int]
"""Host and port."""
_KEY = re.compile(r"[a-z0-9.-]+/[a-z0-9-]+")
_LAST_PORT = 65535


def read_addresses(given: Mapping[str, str]) -> Mapping[str, Address]:
    """Parse addresses of services that a user configures.

    Args:
        given: `host:port` by `namespace/name`.

    Raises:
        ConfigError: one is neither.
    """
    return {name: _read(name, text) for name, text in given.items()}


def _read(name: str, text: str) -> Address:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not _KEY.fullmatch(name) or not host or not port.isdecimal():
        raise ConfigError(
            f"the service {name}={text}",
            "it is not a service and its address",
            "give NAMESPACE/NAME=HOST:PORT",
        )
    if not 1 <= int(port) <= _LAST_PORT:
        raise ConfigError(f"the service {name}={text}", "there is no such port", "give another")
    return host, int(port)


@attrs.frozen(eq=False)
class Services:
    """Finds the address of a Service.

    Args:
        reader: reads Services.
        mapped: addresses from the user, which override those of a Service.
    """

    _reader: StoreReader
    _mapped: Mapping[str, Address]

    def address(self, namespace: str, name: str, port: int) -> Address:
        """The address of a port of a service.

        Raises:
            HookFailed: it has no address.
        """
        mapped = self._mapped.get(f"{namespace}/{name}")
        if mapped is not None:
            return mapped
        service = self._reader.get(SERVICES, ObjectKey(namespace, name))
        if service is None:
            raise HookFailed(f'service "{name}" not found')
        spec = section(service, "spec")
        if spec.get("type") == "ExternalName":
            return spec["externalName"], port
        if spec.get("clusterIP") == "None":
            raise HookFailed('cannot route to service with ClusterIP "None"')
        if port not in {each.get("port") for each in listed(spec, "ports")}:
            raise HookFailed(f'no service port {port} found for service "{name}"')
        raise HookFailed(
            f"dial tcp {spec.get('clusterIP')}:{port}: connect: no route to host: this server has "
            "no cluster network; give it the address of the service, or make it an ExternalName"
        )


# --------------------------------------------------------------------------------------------------

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
