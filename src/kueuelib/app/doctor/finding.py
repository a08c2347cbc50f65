"""Findings, and the checks that make them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from kueuelib.app.doctor.snapshot import ClusterSnapshot


class Severity(IntEnum):
    """How bad a finding is; a higher number is worse."""

    HINT = 0
    """Worth knowing, but possibly intended."""
    WARNING = 1
    """Something does not work as it is written."""
    ERROR = 2
    """Workloads are not queued, not admitted or not started until this is fixed."""


@attrs.frozen
class Subject:
    """The object that a finding is about.

    Attributes:
        kind: its kind.
        name: its name.
        namespace: empty for cluster-scoped kinds.
    """

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else self.title

    @property
    def title(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.name}"


def subject_of(kind: str, obj: Mapping[str, Any]) -> Subject:
    """The subject for a raw object."""
    meta = obj["metadata"]
    return Subject(kind, meta["name"], meta.get("namespace") or "")


@attrs.frozen
class Finding:
    """Something that is wrong.

    Attributes:
        severity: how bad it is.
        subject: the object.
        problem: what is wrong with it, with the evidence.
        fix: the command that fixes it, or shows what to decide about.
        follows: checks whose errors explain it, so that it ends with them; the likeliest first.
    """

    severity: Severity
    subject: Subject
    problem: str
    fix: str
    follows: tuple[str, ...] = ()


Find = Callable[["ClusterSnapshot"], Iterable[Finding]]


@attrs.frozen
class DoctorCheck:
    """One check.

    Attributes:
        name: what it is called in reports, for example `queue-inactive`.
        needs: the kinds and parts of a snapshot that it needs.
        find: finds what is wrong.
        momentary: whether its findings may hold in a healthy cluster for a moment, so only those
            that stay are reported.
        installed: whether it is run on an installation.
        before_migration: whether it is run before another manager's objects are taken over.
    """

    name: str
    needs: tuple[str, ...]
    find: Find
    momentary: bool = False
    installed: bool = True
    before_migration: bool = False


_CHECKS: dict[str, DoctorCheck] = {}


def check(
    name: str,
    *needs: str,
    momentary: bool = False,
    installed: bool = True,
    before_migration: bool = False,
) -> Callable[[Find], Find]:
    """Turns a function into a check.

    Args:
        name: what it is called in reports.
        needs: the kinds whose objects it reads, or parts of a snapshot (`snapshot.FACTS`, ...).
        momentary: whether its findings may hold in a healthy cluster for a moment.
        installed: whether it is run on an installation.
        before_migration: whether it is run before another manager's objects are taken over.
    """

    def register(find: Find) -> Find:
        known = _CHECKS.get(name)
        assert known is None or known.find.__module__ == find.__module__, f"two checks {name}"
        _CHECKS[name] = DoctorCheck(name, needs, find, momentary, installed, before_migration)
        return find

    return register


def all_checks() -> tuple[DoctorCheck, ...]:
    """The checks of an installation, in the order of their modules' names and places in them."""
    return tuple(one for one in _every_check() if one.installed)


def migration_checks() -> tuple[DoctorCheck, ...]:
    """The checks to run before another manager's objects are taken over."""
    return tuple(one for one in _every_check() if one.before_migration)


def _every_check() -> Iterable[DoctorCheck]:
    from kueuelib.app.doctor import checks

    for module in sorted(pkgutil.iter_modules(checks.__path__), key=lambda one: one.name):
        importlib.import_module(f"{checks.__name__}.{module.name}")
    return _CHECKS.values()
