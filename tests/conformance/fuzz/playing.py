"""Plays requests on a server, and judges answers by those of another, or by recorded ones."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import httpx
import yaml

from . import changes, normal
from .making import JSON, SAMPLES, Episode, Request

HERE = Path(__file__).parent
DEFINITION = yaml.load((HERE / "widgets.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
RECORDING = HERE / "answers.jsonl.xz"
HELD_OUT_RECORDING = HERE / "held_out.jsonl.xz"
"""Answers that nobody looks at when the server is corrected: only how many agree."""
NAMESPACES = "/api/v1/namespaces"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SETTLED = ("limitranges", "namespaces", "priorityclasses", "runtimeclasses", "resourcequotas")


@attrs.frozen
class Answer:
    """Status and normalised body."""

    status: int
    body: Any


class Player:
    """Sends the requests of one episode to a server, one after the other.

    Args:
        client: with the address and the credentials.
        name: of the episode and its namespace.
        cluster: whether its objects have no namespace.
    """

    def __init__(self, client: httpx.AsyncClient, name: str, *, cluster: bool) -> None:
        self._client, self._name, self._cluster = client, name, cluster
        self._versions: dict[str, list[str]] = {}
        self._uids: dict[str, str] = {}

    async def begin(self) -> None:
        """Makes the namespace."""
        body = {"metadata": {"name": self._name}}
        made = await self._client.post(NAMESPACES, json=body)
        assert made.status_code == 201, made.text

    async def play(self, request: Request) -> Answer:
        """Sends a request, and gives the answer."""
        body = self._filled(request, request.body)
        if request.edits:
            body = await self._edited(request)
        query = {key: self._filled(request, value) for key, value in request.query.items()}
        response = await self._client.request(
            request.method,
            request.path,
            params=query,
            headers={"Content-Type": "", **request.headers} if body else request.headers,
            content=body.encode() if body else None,
        )
        self._learn(response.text)
        own = self._name if self._cluster else ""
        return Answer(response.status_code, normal.read(response.text, own))

    async def end(self) -> None:
        """Removes what has no namespace and might decide about other episodes."""
        for path in [each for each in self._versions if self._cluster]:
            await self._client.patch(
                path,
                content='{"metadata":{"finalizers":null}}',
                headers={"Content-Type": "application/merge-patch+json"},
            )
            await self._client.delete(path, params={"gracePeriodSeconds": "0"})

    async def _edited(self, request: Request) -> str:
        answer = await self._client.get(request.path)
        obj = answer.json() if answer.status_code == 200 else {"metadata": {"name": "absent"}}
        obj.get("metadata", {}).pop("managedFields", None)
        return json.dumps(changes.changed(obj, request.edits), sort_keys=True)

    def _filled(self, request: Request, text: str) -> str:
        if "@" not in text:
            return text
        path = request.path.removesuffix("/status").removesuffix("/scale")
        versions = self._versions.get(path, ["1"])
        text = text.replace("@RV@", versions[-1]).replace("@OLD@", versions[0])
        return text.replace("@UID@", self._uids.get(path, "none"))

    def _learn(self, text: str) -> None:
        try:
            obj = json.loads(text)
        except ValueError:
            return
        meta = obj.get("metadata") if isinstance(obj, dict) else None
        if not isinstance(meta, dict) or not {"uid", "resourceVersion"} <= meta.keys():
            return
        kinds = {known["kind"]: plural for plural, known in SAMPLES.items()}  # Scale is none
        plural = kinds.get(str(obj.get("kind")), "")
        if not plural:
            return
        where = Episode(None, self._name, plural).collection  # type: ignore[arg-type]
        path = f"{where}/{meta['name']}"
        self._versions.setdefault(path, []).append(meta["resourceVersion"])
        self._uids[path] = meta["uid"]


async def define(client: httpx.AsyncClient) -> None:
    """Makes the custom kind."""
    made = await client.post(DEFINITIONS, json=DEFINITION)
    assert made.status_code in (201, 409), made.text


@attrs.define
class Tally:
    """How often two servers agree, and in which classes they do not.

    Attributes:
        count: of answers.
        status: answers with the same status.
        bare: the same answers, but for `managedFields`.
        whole: the same answers.
        classes: of differences, with how often each came.
        shown: the first few of each class.
    """

    count: int = 0
    status: int = 0
    bare: int = 0
    whole: int = 0
    classes: Counter[str] = attrs.field(factory=Counter)
    shown: dict[str, list[Any]] = attrs.field(factory=dict)

    def add(self, request: Request, here: Answer, there: Answer) -> None:
        """Counts one pair of answers."""
        self.count += 1
        self.status += here.status == there.status
        self.whole += here == there
        bare = normal.without_managers(here.body), normal.without_managers(there.body)
        same = here.status == there.status and bare[0] == bare[1]
        self.bare += same
        if here == there:
            return
        if here.status != there.status:
            told: list[Any] = [here.body, there.body]
            name = f"status {here.status} for {there.status}: {request.about}"
        else:
            pair = (here.body, there.body) if same else bare
            told = list(normal.differences(*pair))
            name = f"{here.status} {told[0][0]}: {request.about}"
        self.classes[name] += 1
        shown = {"request": attrs.asdict(request), "differences": told}
        self.shown.setdefault(name, []).append(shown)

    def __str__(self) -> str:
        shares = [
            f"{name} {100 * part / max(1, self.count):.2f} %"
            for name, part in (
                ("status", self.status),
                ("without managedFields", self.bare),
                ("whole", self.whole),
            )
        ]
        lines = [f"{count:5} {name}" for name, count in self.classes.most_common()]
        return "\n".join([f"{self.count} requests: {', '.join(shares)}", *lines])


async def played(
    client: httpx.AsyncClient, episode: Episode, requests: Iterable[Request], settle: Any = None
) -> AsyncIterator[tuple[Request, Answer]]:
    """The answers of one episode.

    Args:
        client: of the server.
        episode: which one.
        requests: its requests.
        settle: awaited after a write of what decides about other requests.
    """
    player = Player(client, episode.name, cluster=episode.cluster)
    await player.begin()
    for request in requests:
        answer = await player.play(request)
        if settle and request.method != "GET" and answer.status < 300:
            await settle(request.path)
        yield request, answer
    await player.end()


def write(path: Path, episodes: Sequence[tuple[str, str, list[tuple[Request, Answer]]]]) -> None:
    """Writes a recording: a line for each episode."""
    lines = [
        json.dumps(
            {
                "name": name,
                "plural": plural,
                "answers": [
                    [attrs.asdict(request), answer.status, answer.body] for request, answer in pairs
                ],
            }
        )
        for name, plural, pairs in episodes
    ]
    path.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9))


def recorded(path: Path = RECORDING) -> list[tuple[Episode, list[tuple[Request, Answer]]]]:
    """Reads a recording."""
    episodes = []
    for line in lzma.decompress(path.read_bytes()).decode().splitlines():
        told = json.loads(line)
        pairs = [
            (Request(**request), Answer(status, body)) for request, status, body in told["answers"]
        ]
        episodes.append((Episode(None, told["name"], told["plural"]), pairs))  # type: ignore[arg-type]
    return episodes


CONTENT = {"Accept": JSON, "User-Agent": "fuzz/1.0"}
