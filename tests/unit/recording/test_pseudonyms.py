"""Names in messages are replaced before anything else tells of them."""

from __future__ import annotations

import re

import pytest

from kueuelib.api import names
from kueuelib.api.meta import ObjectKey
from kueuelib.recording.facts import fact_data
from kueuelib.recording.writer import Pseudonyms
from kueuelib.scheduler import events
from kueuelib.scheduler.flavor_reasons import FlavorMissing
from kueuelib.scheduler.object_reasons import (
    ClusterQueueMissing,
    LocalQueueMissing,
    LocalQueueStopped,
    NamespaceMismatch,
)
from kueuelib.scheduler.reasons import (
    WAITING_FOR_QUOTA,
    BehindHead,
    condition_reason,
    render,
)
from kueuelib.testing.builders import make_condition, make_workload

REASONS = (
    LocalQueueMissing("secret"),
    LocalQueueStopped("secret"),
    ClusterQueueMissing("secret.1"),
    BehindHead(ObjectKey("secret-ns", "secret-job"), "secret-cq", ObjectKey("secret-ns", "secret")),
    NamespaceMismatch("secret", "secret"),
)
SAID = [(condition_reason(reason), render(reason)) for reason in REASONS]
SAID += [
    (WAITING_FOR_QUOTA, FlavorMissing("secret").text),
    (WAITING_FOR_QUOTA, "insufficient unused quota for cpu in flavor secret-1, 2 more needed"),
]


def written(reason: str, message: str, others: Pseudonyms) -> dict:
    """The condition of a Workload of which nothing else is known, as a recording has it."""
    condition = {**make_condition(names.QUOTA_RESERVED, False, reason), "message": message}
    workload = make_workload("w", "q", {"cpu": 1}, conditions=[condition])
    line = {"fact": "WorkloadSet", "of": fact_data(events.WorkloadSet(workload))}
    return others.rename(line)["of"]["status"]["conditions"][0]


@pytest.mark.parametrize("why", ["", 'admission webhook "secret.example.com" denied the request'])
def test_the_answer_of_the_api_server_is_left_out(why: str) -> None:
    event = events.EvictionFailed(ObjectKey("ns", "w"), "u", why)
    line = Pseudonyms().rename({"fact": "EvictionFailed", "of": fact_data(event)})
    assert line["of"].get("why", "") == ("refused" if why else "")


@pytest.mark.parametrize(("reason", "message"), SAID)
def test_a_message_has_the_pseudonyms_that_its_objects_get_later(reason: str, message: str) -> None:
    pseudonyms = Pseudonyms()
    found = written(reason, message, pseudonyms)["message"]
    assert "secret" not in found
    for name in ("secret", "secret.1", "secret-1", "secret-ns", "secret-job", "secret-cq"):
        message = re.sub(rf"{re.escape(name)}(?=[ ,/]|$)", pseudonyms.of(name), message)
    assert found == message


def test_a_message_that_nothing_is_compared_with_is_not_written() -> None:
    found = written("Preempted", "preemptor path: /both/secret", Pseudonyms())
    assert "message" not in found
