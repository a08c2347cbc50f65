"""Which objects get the name of the default queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kueuelib.api.kinds import LOCAL_QUEUES
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.errors import Unavailable
from kueuelib.jobs.lookups.owners import DefaultQueues, names_no_queue, with_default_queue
from kueuelib.runtime.client import Client
from kueuelib.runtime.informer import Informer


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({}, True),
        ({"labels": None}, True),
        ({"labels": {"app": "a"}}, True),
        ({"labels": {QUEUE_LABEL: "q"}}, False),
        ({"labels": {QUEUE_LABEL: ""}}, True),
        ({"annotations": {QUEUE_LABEL: "q"}}, False),
    ],
)
def test_a_name_of_its_own_is_kept(meta: dict[str, Any], expected: bool) -> None:
    assert names_no_queue({"metadata": meta}) is expected


def test_the_label_joins_those_that_are_there() -> None:
    obj = {"metadata": {"name": "x", "labels": {"app": "a"}}, "spec": {}}
    found = with_default_queue(obj)
    assert found["metadata"]["labels"] == {"app": "a", QUEUE_LABEL: "default"}
    assert obj["metadata"]["labels"] == {"app": "a"}


def test_nothing_is_stored_before_the_queues_are_known() -> None:
    class Silent(Client):
        def __init__(self) -> None:
            """Never asked: the informer does not run."""

    async def given() -> None:
        queues = DefaultQueues(Informer(Silent(), LOCAL_QUEUES))
        assert queues.namespaces is None
        named = {"metadata": {"name": "x", "labels": {QUEUE_LABEL: "q"}}}
        assert queues.given(named, "ns") is named
        with pytest.raises(Unavailable, match="LocalQueue"):
            queues.given({"metadata": {"name": "x"}}, "ns")

    asyncio.run(given())
