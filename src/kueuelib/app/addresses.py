"""The addresses on which a manager listens, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from kueuelib.errors import ConfigError
from kueuelib.runtime.addresses import check_servable, parse_address

if TYPE_CHECKING:
    from kueuelib.app.configuration import Configuration

_ALL = ("", "0.0.0.0", "::")


@attrs.frozen
class Address:
    """One address of a manager.

    Attributes:
        key: of the configuration.
        host: what to bind; everything when empty.
        port: the port.
    """

    key: str
    host: str
    port: int

    def meets(self, other: Address) -> bool:
        """Whether both cannot be bound at once."""
        everything = self.host in _ALL or other.host in _ALL
        return self.port == other.port != 0 and (everything or self.host == other.host)


def addresses(configuration: Configuration, source: str) -> Sequence[Address]:
    """Where the manager of a configuration listens.

    Args:
        configuration: the manager's.
        source: what to call it in errors.

    Raises:
        ConfigError: an address is malformed, or two are the same.
    """
    ordered = list(_addresses(configuration, source))
    for number, one in enumerate(ordered):
        for other in ordered[:number]:
            if one.meets(other):
                raise ConfigError(
                    f"{source}: {one.key}",
                    f"port {one.port} is that of {other.key}, too",
                    "choose another port for one of them",
                )
    return ordered


def _addresses(configuration: Configuration, source: str) -> Iterator[Address]:
    for key, text in (
        ("health.healthProbeBindAddress", configuration.health.health_probe_bind_address),
        ("metrics.bindAddress", configuration.metrics.bind_address),
    ):
        address = parse_address(text, f"{source}: {key}")
        if address is not None:
            yield Address(key, *address)
    webhook = configuration.webhook
    if not 0 < webhook.port < 65536:
        raise ConfigError(
            f"{source}: webhook.port", f"{webhook.port} is not a port", "give one from 1 to 65535"
        )
    yield Address("webhook.port", webhook.host, webhook.port)
    visibility = configuration.visibility_server
    if visibility is not None:
        yield Address("visibilityServer.bindPort", visibility.bind_address, visibility.bind_port)


async def check_addresses(configuration: Configuration, source: str) -> None:
    """Refuses addresses that the manager could not serve, before it starts.

    Raises:
        ConfigError: one is malformed, or in use.
    """
    for one in addresses(configuration, source):
        await check_servable(one.host, one.port, subject=f"{source}: {one.key}")
