"""Checks how the methods of a class of jobs can be called, before anything runs.

A method that is `async`, takes other arguments or is a field would otherwise fail, or always count
as true, in a reconciler or a webhook. There the error would reach a user who did not write it.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Iterator
from functools import cached_property, partialmethod
from typing import Any

from kueuelib.api.kinds import KUEUE
from kueuelib.api.names import PREBUILT_LABEL, QUEUE_LABEL
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract import capabilities
from kueuelib.jobs.contract.generic_job import GenericJob

_CAPABILITIES: tuple[abc.ABCMeta, ...] = tuple(
    each for each in vars(capabilities).values() if inspect.isabstract(each)
)
_READ_FROM_LABELS = {"queue_name": QUEUE_LABEL, "prebuilt_workload": PREBUILT_LABEL}
_PROPERTIES = tuple(
    name for name, member in vars(GenericJob).items() if isinstance(member, property)
)


def check_methods(subject: str, job_type: type[GenericJob[Any]]) -> None:
    """Check the methods and properties of a class of jobs.

    Args:
        subject: what an error is about.
        job_type: the class.

    Raises:
        ConfigError: one of them is missing, or cannot be called as the framework calls it.
    """
    if missing := ", ".join(sorted(job_type.__abstractmethods__)):
        raise ConfigError(subject, f"has no {missing}", "write these methods")
    if job_type.resource.group == KUEUE:
        problem = f"resource is of the group {KUEUE}, which has no jobs"
        raise ConfigError(subject, problem, "set resource to the kind of your jobs")
    for name, arguments in _called(job_type):
        member = inspect.getattr_static(job_type, name)
        written = f"write def {name}({', '.join(arguments)})"
        refused = isinstance(member, property | partialmethod)
        if refused or not callable(getattr(job_type, name)):
            problem = f"{name} is a {type(member).__name__}, not a method"
            raise ConfigError(subject, problem, written)
        if _is_async(getattr(job_type, name)):
            raise ConfigError(subject, f"{name} is async", f"{written}: methods do no I/O")
        if not _takes(job_type, name, member, arguments):
            raise ConfigError(subject, f"{name} takes other arguments", written)
    for name, label in _READ_FROM_LABELS.items():
        if inspect.getattr_static(job_type, name) is not vars(GenericJob)[name]:
            fix = f"set the label {label} of new objects, in a webhook of yours"
            raise ConfigError(subject, f"{name} is overridden", f"{fix}: others only see the label")
    for name in _PROPERTIES:
        member = inspect.getattr_static(job_type, name)
        written = f"write @property above def {name}(self)"
        if not (inspect.isdatadescriptor(member) or isinstance(member, cached_property)):
            raise ConfigError(subject, f"{name} is not a property", written)
        if _is_async(getattr(member, "fget", None) or getattr(member, "func", None)):
            raise ConfigError(subject, f"{name} is async", f"{written}: it does no I/O")


def _called(job_type: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The methods that the framework calls, and the names of their arguments."""
    bases: tuple[type, ...] = (GenericJob, *_CAPABILITIES)
    for base in bases:
        if base in job_type.__mro__:
            for name, member in vars(base).items():
                if inspect.isfunction(member) and (name == "__init__" or name[0] != "_"):
                    yield name, tuple(inspect.signature(member).parameters)


def _is_async(method: Any) -> bool:
    """Whether a method is async as it was written; a wrapper may hide that."""
    written = inspect.unwrap(method)
    return inspect.iscoroutinefunction(written) or inspect.isasyncgenfunction(written)


def _takes(job_type: type, name: str, member: Any, arguments: tuple[str, ...]) -> bool:
    """Whether a method can be called with these arguments, by position."""
    bound = isinstance(member, classmethod | staticmethod)
    try:
        inspect.signature(getattr(job_type, name)).bind(*arguments[bound:])
    except TypeError:
        return False
    except ValueError:  # some that are not written in Python have no signature
        return True
    return True
