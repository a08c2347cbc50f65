"""Kinds of jobs that can be queued, and the parts for writing a kind of your own.

The names below are imported when they are used first. Behind them are packages, in the order of
their imports:

- `contract`: what a kind is, `GenericJob`, and optional capabilities
- `batch`, `declared`: kinds that are programmed, and kinds that are declared by paths
- `lookups`, `reconcile`: the facts about a job, and the plan for it
- `kinds`: kinds of CRDs, which may come and go while the manager runs
- `webhooks`, `pods`: the webhooks of all kinds, and the special kind: plain pods
- `builtin`, `plugins`: the kinds that come with kueuelib, and those of other packages
- `assembly`, `process`: for the manager that queues them, and for a manager of your own
- `client`: for programs that submit jobs

`setup` adds kinds to a manager of your own, `serve` and `run` are whole programs. These names are
stable, see docs/stability.md; the modules that they come from are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kueuelib.jobs.assembly import job_webhooks as job_webhooks
    from kueuelib.jobs.assembly import setup as setup
    from kueuelib.jobs.batch import BatchJob as BatchJob
    from kueuelib.jobs.contract.capabilities import ComposableJob as ComposableJob
    from kueuelib.jobs.contract.capabilities import JobWithCustomStop as JobWithCustomStop
    from kueuelib.jobs.contract.capabilities import JobWithEquivalence as JobWithEquivalence
    from kueuelib.jobs.contract.capabilities import JobWithFinalize as JobWithFinalize
    from kueuelib.jobs.contract.capabilities import JobWithPriorityClass as JobWithPriorityClass
    from kueuelib.jobs.contract.capabilities import JobWithReclaimablePods as JobWithReclaimablePods
    from kueuelib.jobs.contract.capabilities import JobWithReplacements as JobWithReplacements
    from kueuelib.jobs.contract.capabilities import JobWithSkip as JobWithSkip
    from kueuelib.jobs.contract.capabilities import Matching as Matching
    from kueuelib.jobs.contract.capabilities import Stop as Stop
    from kueuelib.jobs.contract.capabilities import StopReason as StopReason
    from kueuelib.jobs.contract.commands import Change as Change
    from kueuelib.jobs.contract.commands import Command as Command
    from kueuelib.jobs.contract.commands import Create as Create
    from kueuelib.jobs.contract.commands import Delete as Delete
    from kueuelib.jobs.contract.commands import DropFinalizer as DropFinalizer
    from kueuelib.jobs.contract.commands import Emit as Emit
    from kueuelib.jobs.contract.commands import PatchStatus as PatchStatus
    from kueuelib.jobs.contract.commands import Recheck as Recheck
    from kueuelib.jobs.contract.commands import RequeueAfter as RequeueAfter
    from kueuelib.jobs.contract.generic_job import GenericJob as GenericJob
    from kueuelib.jobs.contract.generic_job import JobEnd as JobEnd
    from kueuelib.jobs.contract.generic_job import PodSet as PodSet
    from kueuelib.jobs.contract.integration import Integration as Integration
    from kueuelib.jobs.contract.podset_info import PodSetInfo as PodSetInfo
    from kueuelib.jobs.contract.podset_info import check_count as check_count
    from kueuelib.jobs.contract.podset_info import merge as merge
    from kueuelib.jobs.contract.podset_info import merge_all as merge_all
    from kueuelib.jobs.contract.podset_info import merged_all as merged_all
    from kueuelib.jobs.contract.podset_info import restore as restore
    from kueuelib.jobs.contract.podset_info import restore_all as restore_all
    from kueuelib.jobs.contract.podset_info import restored_all as restored_all
    from kueuelib.jobs.contract.settings import JobSettings as JobSettings
    from kueuelib.jobs.contract.settings import PodSettings as PodSettings
    from kueuelib.jobs.contract.settings import QuotaReleaseStrategy as QuotaReleaseStrategy
    from kueuelib.jobs.contract.settings import TakenOver as TakenOver
    from kueuelib.jobs.contract.topology import Ranks as Ranks
    from kueuelib.jobs.declared.declarative import AtMost as AtMost
    from kueuelib.jobs.declared.declarative import Done as Done
    from kueuelib.jobs.declared.declarative import HasCondition as HasCondition
    from kueuelib.jobs.declared.declarative import Word as Word
    from kueuelib.jobs.declared.declarative import declare as declare
    from kueuelib.jobs.declared.declarative import differs as differs
    from kueuelib.jobs.declared.declarative import enough as enough
    from kueuelib.jobs.declared.declarative import equals as equals
    from kueuelib.jobs.declared.declarative import every as every
    from kueuelib.jobs.declared.declarative import never as never
    from kueuelib.jobs.declared.declarative import outdated as outdated
    from kueuelib.jobs.declared.pod_shape import Pods as Pods
    from kueuelib.jobs.pods.group import PodGroup as PodGroup
    from kueuelib.jobs.pods.single import PodJob as PodJob
    from kueuelib.jobs.process import run as run
    from kueuelib.jobs.process import serve as serve
    from kueuelib.jobs.reconcile.matching import same_templates as same_templates
    from kueuelib.runtime.webhook.server import Webhooks as Webhooks
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "kueuelib.jobs.assembly": "job_webhooks setup",
            "kueuelib.jobs.batch": "BatchJob",
            "kueuelib.jobs.contract.capabilities": "ComposableJob JobWithCustomStop "
            "JobWithEquivalence JobWithFinalize JobWithPriorityClass JobWithReclaimablePods "
            "JobWithReplacements JobWithSkip Matching Stop StopReason",
            "kueuelib.jobs.contract.commands": "Change Command Create Delete DropFinalizer Emit "
            "PatchStatus Recheck RequeueAfter",
            "kueuelib.jobs.contract.generic_job": "GenericJob JobEnd PodSet",
            "kueuelib.jobs.contract.integration": "Integration",
            "kueuelib.jobs.contract.podset_info": "PodSetInfo check_count merge merge_all "
            "merged_all restore restore_all restored_all",
            "kueuelib.jobs.contract.settings": "JobSettings PodSettings QuotaReleaseStrategy "
            "TakenOver",
            "kueuelib.jobs.contract.topology": "Ranks",
            "kueuelib.jobs.declared.declarative": "AtMost Done HasCondition Word declare differs "
            "enough equals every never outdated",
            "kueuelib.jobs.declared.pod_shape": "Pods",
            "kueuelib.jobs.pods.group": "PodGroup",
            "kueuelib.jobs.pods.single": "PodJob",
            "kueuelib.jobs.reconcile.matching": "same_templates",
            "kueuelib.jobs.process": "run serve",
            "kueuelib.runtime.webhook.server": "Webhooks",
        },
    )
