"""Asks both servers the same: `python -m tests.conformance.fuzz --help`.

`$KUBEBUILDER_ASSETS` names the folder with etcd and kube-apiserver.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from real_server import RealServer, assets, running

from kueuelib.embedded.server import ApiServer

from .making import episodes
from .playing import CONTENT, SETTLED, Tally, define, played, write


@asynccontextmanager
async def opened(server: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the administrator's token."""
    context = ssl.create_default_context(cadata=server.ca.decode())
    headers = {**CONTENT, "Authorization": f"Bearer {server.token}"}
    async with httpx.AsyncClient(
        base_url=server.url, headers=headers, verify=context, trust_env=False, timeout=30
    ) as client:
        yield client


async def compare(real: RealServer, seed: int, count: int, record: Path | None) -> Tally:
    """Plays the episodes of a seed on both servers."""
    tally, kept = Tally(), []

    async def settle(path: str) -> None:
        if any(each in path.split("/namespaces/", 1)[0] for each in SETTLED) or any(
            f"/{each}" in path for each in SETTLED if each != "namespaces"
        ):
            await asyncio.sleep(0.15)

    async with ApiServer() as server, opened(server) as here, opened(real) as there:
        await define(here)
        await define(there)
        await real.settle("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        for episode in episodes(seed, count):
            requests = list(episode.requests())
            ours = [pair async for pair in played(here, episode, requests)]
            theirs = [pair async for pair in played(there, episode, requests, settle)]
            kept.append((episode.name, episode.plural, theirs))
            for (request, one), (_, other) in zip(ours, theirs, strict=True):
                tally.add(request, one, other)
    if record is not None:
        write(record, kept)
    return tally


def main() -> None:
    """Prints how often the servers agree, and the classes of differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=66, help="of 30 requests each (66)")
    parser.add_argument("--record", type=Path, help="where the real answers are written")
    parser.add_argument("--show", type=Path, help="where examples of differences are written")
    given = parser.parse_args()
    folder = assets()
    if folder is None:
        sys.exit("$KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    with tempfile.TemporaryDirectory() as work, running(folder, Path(work)) as real:
        tally = asyncio.run(compare(real, given.seed, given.episodes, given.record))
    print(tally)
    if given.show:
        given.show.write_text(json.dumps(tally.shown, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
