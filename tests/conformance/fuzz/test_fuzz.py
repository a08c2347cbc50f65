"""Random requests get the answers of kube-apiserver: fresh ones where it is at hand, else recorded.

`docs/embedded.md` lists the classes of what still differs. The shares may only rise.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.conformance.fuzz.__main__ import compare, opened
from tests.conformance.fuzz.making import SAMPLES, episodes
from tests.conformance.fuzz.normal import differences, normal, read, without_managers
from tests.conformance.fuzz.playing import (
    HELD_OUT_RECORDING,
    RECORDING,
    Tally,
    define,
    played,
    recorded,
)

from kueuelib.embedded.server import ApiServer

Shares = dict[str, float]
MENDED: Shares = {"status": 99.7, "bare": 98.6, "whole": 98.3}
"""At least so many of a hundred answers agree: in status, but for managers of fields, in all."""
HELD_OUT: Shares = {"status": 99.7, "bare": 98.6, "whole": 98.2}
"""The same for requests that were not looked at when the server was corrected."""
FRESH: Shares = {"status": 98.8, "bare": 96.5, "whole": 96.0}
"""The same for a few new requests, of which one kind or another may have more than its part."""
FRESH_SEED = 1_000
FRESH_EPISODES = 12


def assert_agrees(tally: Tally, shares: Shares) -> None:
    found = {name: 100 * getattr(tally, name) / tally.count for name in shares}
    assert all(found[name] >= least for name, least in shares.items()), f"{found}\n{tally}"


@pytest.mark.parametrize(
    ("recording", "shares"), [(RECORDING, MENDED), (HELD_OUT_RECORDING, HELD_OUT)]
)
async def test_recorded_answers_of_kube_apiserver_are_given_here_too(recording, shares):
    tally = Tally()
    async with ApiServer() as server, opened(server) as client:
        await define(client)
        for episode, pairs in recorded(recording):
            asked = [request for request, _ in pairs]
            here = [answer async for _, answer in played(client, episode, asked)]
            for (request, there), answer in zip(pairs, here, strict=True):
                tally.add(request, answer, there)
    assert tally.count >= 900
    assert_agrees(tally, shares)


def test_kube_apiserver_itself_gives_such_answers(request):
    """Where the programs are, with requests that nobody has looked at."""
    module = pytest.importorskip("real_server")
    if module.assets() is None:
        pytest.skip("$KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    real = request.getfixturevalue("real_server")
    real.clean()
    assert_agrees(asyncio.run(compare(real, FRESH_SEED, FRESH_EPISODES, None)), FRESH)


def test_a_seed_gives_the_same_requests_about_every_kind():
    def made() -> list[object]:
        return [list(each.requests()) for each in episodes(7, len(SAMPLES))]

    assert made() == made()
    assert {each.plural for each in episodes(7, len(SAMPLES))} == set(SAMPLES)


def test_what_differs_by_chance_is_not_compared():
    uid = "0f2ac1a8-4b0c-4b5a-9c70-6f3b7a9b2f11"
    found = normal({"metadata": {"uid": uid, "resourceVersion": "12", "name": "gen-x7k2p"}})
    assert found == {"metadata": {"uid": "UID", "resourceVersion": "RV", "name": "gen-*"}}
    told = read(
        '{"items": [{"metadata": {"name": "fuzz-1-2-one"}}, {"metadata": {"name": "x"}}]}',
        "fuzz-1-2",
    )
    assert [each["metadata"]["name"] for each in told["items"]] == ["fuzz-1-2-one"]
    assert read("apiVersion: v1\nkind: Status\n") == {"apiVersion": "v1", "kind": "Status"}
    assert read("not found") == "not found"


def test_a_difference_has_a_place():
    here = {"a": [{"b": 1}], "managedFields": []}
    assert list(differences(here, {"a": [{"b": True}]})) == [
        (".a[].b", 1, True),
        (".managedFields", [], "ABSENT"),
    ]
    assert without_managers(here) == {"a": [{"b": 1}]}
