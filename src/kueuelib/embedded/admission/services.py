"""Finds the addresses of webhooks that are named by a Service, without a cluster network."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from kueuelib.api.kinds import SERVICES
from kueuelib.api.meta import ObjectKey
from kueuelib.embedded.admission.plugin import Reader
from kueuelib.embedded.builtins.raw import listed, section
from kueuelib.embedded.conversion import HookFailed
from kueuelib.errors import ConfigError

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

    _reader: Reader
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
