"""Webhook entries follow what is enabled and what is answered; those of others are left alone."""

from __future__ import annotations

import copy
from typing import Any

from kueuelib.controllers.webhooks import by_service, by_url, webhook_configurations
from kueuelib.embedded.admission.hook_rules import compile_conditions, fulfilled
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.declared.jobset import JOB_SET
from kueuelib.jobs.webhooks.entries import in_order
from kueuelib.jobs.webhooks.manifests import namespaces_of, webhook_entries
from kueuelib.runtime.webhook.admission import WebhookEntry

NAMED = JobSettings()
ALL = JobSettings(manage_jobs_without_queue_name=True)
PATHS = ("/mutate-batch-v1-job", "/mutate-queue", "/mutate-x")
QUEUE = WebhookEntry(True, "/mutate-queue", {"name": "mqueue.kb.io", "rules": [{}]})


OURS = ("mjob.kb.io", "mjob-default.kb.io")


def entries(settings: JobSettings, namespaces: tuple[str, ...] = ()) -> list[WebhookEntry]:
    found = webhook_entries([BATCH_JOB], settings, namespaces)
    return [entry for entry in found if entry.mutating]


def installed(*more: WebhookEntry, url: str = "https://h:1") -> dict[str, Any]:
    config = by_url(url) if url else by_service("kueue-system", "svc")
    found = webhook_configurations([QUEUE, *entries(NAMED), *more], config)[0]
    for webhook in found["webhooks"]:
        webhook["clientConfig"]["caBundle"] = "Q0E="
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook["timeoutSeconds"] = 10
    return found


def names(found: dict[str, Any]) -> list[str]:
    return [webhook["name"] for webhook in found["webhooks"]]


def test_what_is_in_order_is_not_written() -> None:
    found = installed()
    assert in_order(found, entries(NAMED), PATHS) is found


def test_jobs_without_a_queue_name_get_an_entry_of_their_own_and_lose_it_again() -> None:
    found = installed()
    changed = in_order(found, entries(ALL), PATHS)
    assert names(changed) == ["mqueue.kb.io", "mjob.kb.io", "mjob-unnamed.kb.io"]
    added = changed["webhooks"][2]
    assert added["clientConfig"] == {"url": "https://h:1/mutate-batch-v1-job", "caBundle": "Q0E="}
    assert added["namespaceSelector"]["matchExpressions"]
    back = in_order(changed, entries(NAMED), PATHS)
    assert names(back) == ["mqueue.kb.io", *OURS]


def test_namespaces_with_a_default_queue_are_written_and_read_back() -> None:
    found = installed()
    assert namespaces_of(found["webhooks"]) == frozenset()
    changed = in_order(found, entries(NAMED, ("b", "a")), PATHS)
    assert names(changed) == ["mqueue.kb.io", *OURS]
    assert namespaces_of(changed["webhooks"]) == {"a", "b"}
    assert in_order(changed, entries(NAMED, ("a", "b")), PATHS) is changed
    assert namespaces_of(in_order(changed, entries(NAMED), PATHS)["webhooks"]) == frozenset()


def test_entries_that_nobody_answers_go_away() -> None:
    stale = WebhookEntry(True, "/mutate-ray", {"name": "mray.kb.io", "rules": [{}]})
    found = installed(stale)
    assert names(in_order(found, entries(NAMED), PATHS)) == ["mqueue.kb.io", *OURS]


def test_entries_of_another_server_are_left_alone() -> None:
    found = installed()
    other = copy.deepcopy(found["webhooks"][0])
    other["name"] = "theirs.example.com"
    other["clientConfig"] = {"service": {"name": "theirs", "namespace": "n", "path": "/else"}}
    found["webhooks"].append(other)
    assert in_order(found, entries(NAMED), PATHS) is found


def test_services_are_reached_under_the_path_of_each_entry() -> None:
    changed = in_order(installed(url=""), entries(ALL), PATHS)
    assert changed["webhooks"][2]["clientConfig"]["service"] == {
        "namespace": "kueue-system",
        "name": "svc",
        "path": "/mutate-batch-v1-job",
        "port": 443,
    }


def test_an_empty_configuration_tells_no_address_and_stays() -> None:
    found = {"metadata": {"name": "c"}, "webhooks": []}
    assert in_order(found, entries(ALL), PATHS) is found


def asks_to_judge(
    new: dict[str, Any], old: dict[str, Any] | None = None, kind: Integration = BATCH_JOB
) -> bool:
    """Whether an API server sends a job to the validating webhook."""
    (found,) = [each.entry for each in webhook_entries([kind], NAMED) if not each.mutating]
    return fulfilled(compile_conditions(found["matchConditions"]), new, old, {})


def job(parallelism: int = 4, **notes: str) -> dict[str, Any]:
    template = {"metadata": {"annotations": notes}} if notes else {}
    meta = {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    return {"metadata": meta, "spec": {"parallelism": parallelism, "template": template}}


SLICE = {"kueue.x-k8s.io/podset-slice-size": "2"}


def test_plain_jobs_are_judged_only_if_their_pods_ask_for_a_topology() -> None:
    assert not asks_to_judge(job())
    assert not asks_to_judge(job(**{"example.com/a": "b"}))
    assert asks_to_judge(job(**SLICE))


def test_changed_requests_for_a_topology_are_judged() -> None:
    started = {"kueue.x-k8s.io/workload": "w"}
    assert asks_to_judge(job(**SLICE), job())
    assert not asks_to_judge(job(**SLICE), job(**SLICE))
    assert not asks_to_judge(job(**started), job()), "the manager has started it"
    assert asks_to_judge(job(6, **SLICE), job(**SLICE))


def test_changed_templates_of_kinds_without_rules_of_their_own_are_judged() -> None:
    def jobs(replicas: int, **notes: str) -> dict[str, Any]:
        one = {"replicas": replicas, "template": {"spec": job(**notes)["spec"]}}
        return {"metadata": job()["metadata"], "spec": {"replicatedJobs": [one]}}

    assert asks_to_judge(jobs(2, **SLICE), jobs(2), JOB_SET)
    assert asks_to_judge(jobs(3, **SLICE), jobs(2, **SLICE), JOB_SET)
    reported = {**jobs(2), "status": {"restarts": 1}}
    assert not asks_to_judge(reported, jobs(2), JOB_SET)
