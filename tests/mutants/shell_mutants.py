"""The list of the faults that are planted in the shell of the manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import yaml

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src" / "kueuelib"


@attrs.frozen
class Edit:
    """A text that is replaced.

    Attributes:
        file: where it is, below the package.
        old: what the file says, once.
        new: what it says with the fault.
    """

    file: str
    old: str
    new: str


@attrs.frozen
class ShellMutant:
    """One fault.

    Attributes:
        id: its name.
        why: what it is, and who had it.
        profile: the family of storms that is tried first.
        world: which storms are tried before all others: `any`, those with `trees` of Cohorts, or
            those with many acts whose label has this part.
        edits: what is replaced.
    """

    id: str
    why: str
    profile: str
    world: str
    edits: tuple[Edit, ...]

    @property
    def first(self) -> tuple[str, str]:
        """What `hunt.py` is told about the storms to try first."""
        return self.profile, self.world

    def plant(self, package: Path) -> None:
        """Put the fault into a copy of the package."""
        for edit in self.edits:
            file = package / edit.file
            file.write_text(file.read_text().replace(edit.old, edit.new))


def shell_mutants() -> list[ShellMutant]:
    """All of the list."""
    return list(
        map(_mutant, yaml.load((HERE / "shell_mutants.yaml").read_text(), yaml.CSafeLoader))
    )


def _mutant(raw: dict[str, Any]) -> ShellMutant:
    edits = ({name: raw[name] for name in ("file", "old", "new")}, *raw.get("more", ()))
    return ShellMutant(
        raw["id"],
        raw["why"],
        raw["profile"],
        raw.get("world", "any"),
        tuple(Edit(**each) for each in edits),
    )
