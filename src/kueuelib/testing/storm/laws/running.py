"""Tracks running Jobs, and recognises calls that release the quota of one."""

from __future__ import annotations

import json
from typing import Any

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.reading import (
    IN_USE,
    JOBS,
    WORKLOADS,
    busy,
    condition,
    controller,
    finished,
    job_end,
    leaving,
    meta,
    reserving,
    suspended,
    uid,
)

Key = tuple[str, str, str]
"""Resource, namespace and name."""


class Running:
    """The Jobs that run without a pause, and the Workloads that hold quota for them."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Key, int]] = {}
        self._used_by: dict[Key, str] = {}

    def commit(self, commit: Commit) -> None:
        """Take in a commit."""
        new = commit.new
        if commit.resource == JOBS:
            identity = uid(commit.present)
            if new is None or not _runs(new):
                self._since.pop(identity, None)
            else:
                version = int(meta(new).get("resourceVersion") or 0)
                self._since.setdefault(identity, (commit.key, version))
        elif commit.resource == WORKLOADS:
            self._used_by.pop(commit.key, None)
            owner = controller(new) if new is not None else {}
            if new is not None and owner and reserving(new) and not finished(new):
                self._used_by[commit.key] = str(owner["uid"])

    def used(self, workload: Key) -> tuple[Key, int] | None:
        """The running Job of a Workload.

        Returns:
            the Job, and the version since which all its states were running; None if it does not
            run.
        """
        return self._since.get(self._used_by.get(workload, ""))


def lets_go(subresource: str, body: bytes) -> bool:
    """Whether a patch of a Workload releases its quota, or permits its deletion."""
    try:
        patch: Any = json.loads(body)
    except ValueError:
        return False
    if isinstance(patch, list):
        return any(step.get("op") == "test" and step.get("value") == IN_USE for step in patch)
    if subresource != "status" or not isinstance(patch, dict):
        return False
    return condition(patch, "QuotaReserved").get("status") == "False"


def _runs(job: Obj) -> bool:
    """Whether a Job may start pods, or has some."""
    return not leaving(job) and not job_end(job) and (not suspended(job) or busy(job))
