"""The kinds of jobs that can be queued, and which of them are enabled (KEP-369)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

from kueuelib.api.meta import Resource
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.integration import Integration


@attrs.frozen
class Registry:
    """All known integrations, in the order they were registered."""

    integrations: tuple[Integration, ...] = ()

    def register(self, integration: Integration) -> Registry:
        """A registry with one more integration.

        Raises:
            ConfigError: the name or the kind is taken.
        """
        for known in self.integrations:
            if known.name == integration.name:
                raise ConfigError(
                    f'integration "{integration.name}"',
                    "is registered already",
                    "give it another name",
                )
            if known.resource.group_kind == integration.resource.group_kind:
                raise ConfigError(
                    f'integration "{integration.name}"',
                    f'its kind is that of the integration "{known.name}"',
                    "let one integration manage a kind",
                )
        return attrs.evolve(self, integrations=(*self.integrations, integration))

    def without(self, resource: Resource, wanted: Collection[str]) -> Registry:
        """A registry without the integration of a kind, unless its name is wanted."""
        kept = [
            known
            for known in self.integrations
            if known.name in wanted or known.resource.group_kind != resource.group_kind
        ]
        return attrs.evolve(self, integrations=tuple(kept))

    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(known.name for known in self.integrations))

    def enabled(self, frameworks: Iterable[str]) -> tuple[Integration, ...]:
        """The integrations that the configuration names, and those they imply, in registration
        order.

        Raises:
            ConfigError: a name is not known.
        """
        wanted = set(frameworks)
        unknown = sorted(wanted - {known.name for known in self.integrations})
        if unknown:
            raise ConfigError(
                "integrations.frameworks",
                f"unknown names: {', '.join(unknown)}",
                f"use some of: {', '.join(self.names())}",
            )
        wanted |= {
            name for known in self.integrations if known.name in wanted for name in known.implies
        }
        return tuple(known for known in self.integrations if known.name in wanted)
