"""Requests drawn at random, in episodes: one kind, a namespace of its own, two names.

A request does not depend on answers, so both servers get the same. What it has to know of an object
is written as a token, which the player replaces: `@RV@`, `@OLD@` and `@UID@`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path as File
from random import Random
from typing import Any

import attrs
import yaml

from . import changes

LENGTH = 30
"""Requests of an episode."""
JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIALS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
SAMPLES: dict[str, Any] = yaml.load(
    (File(__file__).parent / "samples.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
WEIGHTS = {
    "create": 6,
    "update": 3,
    "edit": 6,
    "json": 4,
    "merge": 4,
    "strategic": 4,
    "apply": 6,
    "delete": 2,
    "get": 2,
    "list": 3,
    "purge": 0.5,
    "scale": 1,
    "path": 0.5,
}


@attrs.frozen
class Request:
    """One request.

    Attributes:
        about: plural and verb, for the classes of differences.
        method: of HTTP.
        path: without the query.
        query: of the URL.
        headers: beside those of every request.
        body: what is sent; empty for nothing.
        edits: what is changed in the present object, which is then sent.
    """

    about: str
    method: str
    path: str
    query: dict[str, str] = attrs.field(factory=dict)
    headers: dict[str, str] = attrs.field(factory=dict)
    body: str = ""
    edits: list[Any] = attrs.field(factory=list)


class Episode:
    """The requests about one kind in one namespace."""

    def __init__(self, random: Random, name: str, plural: str) -> None:
        self.random, self.name, self.plural = random, name, plural
        self.known = SAMPLES[plural]
        self.cluster = bool(self.known.get("cluster"))
        version = self.known["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        where = "" if self.cluster else f"/namespaces/{name}"
        self.collection = f"{root}{where}/{plural}"

    def requests(self, length: int = LENGTH) -> Iterator[Request]:
        """The requests, the first two of which mostly create the objects."""
        for each in ("one", "two"):
            name = f"{self.name}-{each}" if self.cluster else each
            most = 0 if self.chance(0.8) else 3
            yield self.written("create", "POST", self.collection, self.sample(name, most=most))
        for _ in range(length - 2):
            (verb,) = self.random.choices([*WEIGHTS], [*WEIGHTS.values()])
            yield getattr(self, verb)()

    # ---- parts

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def a_name(self) -> str:
        name = self.random.choice(("one", "one", "two"))
        return f"{self.name}-{name}" if self.cluster else name

    def sample(self, name: str, *, most: int = 3) -> dict[str, Any]:
        """A sample of the kind, with some changes."""
        text = json.dumps(self.random.choice(self.known["samples"]))
        obj = json.loads(text.replace("{name}", name).replace("{namespace}", self.name))
        if self.plural == "widgets" or not self.chance(0.1):
            obj = {"apiVersion": self.known["apiVersion"], "kind": self.known["kind"], **obj}
        times = min(most, self.random.choices((0, 1, 2, 3), (5, 4, 2, 1))[0])
        return changes.changed(obj, [changes.edit(self.random, obj) for _ in range(times)])

    def options(self) -> dict[str, str]:
        """Options of a write."""
        options = {}
        if self.chance(0.08):
            options["dryRun"] = "All" if self.chance(0.9) else "x"
        if self.chance(0.3):
            options["fieldValidation"] = self.random.choice(("Strict", "Warn", "Ignore", "Strict"))
        if self.chance(0.2):
            options["fieldManager"] = self.random.choice(("a", "b"))
        if self.chance(0.03):
            odd = (("fieldValidation", "x"), ("force", "true"), ("fieldManager", "a" * 129))
            name, value = self.random.choice((*odd, ("fieldManager", "a\n"), ("odd", "1")))
            options[name] = value
        return options

    def written(self, verb: str, method: str, path: str, data: Any, type_: str = JSON) -> Request:
        """A request with a body, which is now and then a bad one."""
        text = json.dumps(data, ensure_ascii=False)
        if type_ in (JSON, APPLY) and self.chance(0.15):
            text = yaml.safe_dump(data, allow_unicode=True)
            type_ = "application/yaml" if type_ == JSON else type_
        if self.chance(0.04):
            text, type_ = self.spoilt(text, type_)
        headers = {"Content-Type": type_} if type_ else {}
        if self.chance(0.03):
            headers["Accept"] = self.random.choice((TABLE, PARTIAL, "application/yaml", "text/x"))
        about = f"{self.plural} {verb}"
        return Request(about, method, path, self.options(), headers, text)

    def spoilt(self, text: str, type_: str) -> tuple[str, str]:
        bad = ("", "null", "[]", "1", '"x"', "{", "{}", '{"kind":[]}', '{"metadata":1}', "a: b: c")
        how = self.random.randrange(4)
        if how == 0:
            return self.random.choice(bad), type_
        if how == 1:
            return text[: self.random.randrange(len(text) + 1)], type_
        if how == 2:
            types = ("text/plain", "application/xml", "", JSON, MERGE, "application/yaml", "x")
            return text, self.random.choice(types)
        return text.replace('"metadata": {', '"metadata": {"name": "z", "odd": 1, ', 1), type_

    def patched(self, verb: str, data: Any, type_: str) -> Request:
        path = f"{self.collection}/{self.a_name()}"
        if self.known.get("status") and self.chance(0.15):
            path, verb = f"{path}/status", f"{verb} status"
        return self.written(verb, "PATCH", path, data, type_)

    # ---- verbs

    def create(self) -> Request:
        return self.written("create", "POST", self.collection, self.sample(self.a_name()))

    def update(self) -> Request:
        name = self.a_name()
        obj = self.sample(name if self.chance(0.97) else "other")
        meta = obj.get("metadata")
        if isinstance(meta, dict) and self.chance(0.7):
            versions = ("@RV@", "@RV@", "@RV@", "@OLD@", "1", "x", "0")
            meta["resourceVersion"] = self.random.choice(versions)
        return self.written("update", "PUT", f"{self.collection}/{name}", obj)

    def edit(self) -> Request:
        """Reads an object, changes it, and writes it: what most clients do."""
        name = self.a_name()
        path, verb = f"{self.collection}/{name}", "edit"
        obj = self.sample(name, most=0)
        if self.known.get("status") and self.chance(0.2):
            path, verb = f"{path}/status", "edit status"
            obj["status"] = {"replicas": 1, "conditions": [{"type": "A", "status": "True"}]}
        edits = [changes.edit(self.random, obj) for _ in range(self.random.choice((1, 1, 2, 3)))]
        headers = {"Content-Type": JSON}
        return Request(
            f"{self.plural} {verb}", "PUT", path, self.options(), headers, edits=[*map(list, edits)]
        )

    def json(self) -> Request:
        obj = self.sample("one", most=0)
        operations = []
        for _ in range(self.random.choice((1, 1, 2, 3))):
            how, path, new = changes.edit(self.random, obj)
            pointer = "".join(
                f"/{str(each).replace('~', '~0').replace('/', '~1')}" for each in path
            )
            op = self.random.choice(("replace", "add")) if how == "set" else "remove"
            operation = {"op": op, "path": pointer, "value": new}
            if op == "remove":
                del operation["value"]
            if self.chance(0.15):
                value = changes.at(obj, path)
                odd = ({"op": "test", "path": pointer, "value": value}, {"op": "x", "path": "/a"})
                moved = {"op": "move", "from": pointer, "path": "/metadata/annotations/m"}
                copied = {"op": "copy", "from": pointer, "path": f"{pointer}x"}
                rare = ({"op": "add", "path": pointer}, {"path": pointer}, {"op": "remove"})
                operation = self.random.choice((*odd, odd[0], moved, copied, *rare))
            operations.append(operation)
        return self.patched("json patch", operations, JSON_PATCH)

    def merge(self) -> Request:
        return self.patched("merge patch", self.part(), MERGE)

    def strategic(self) -> Request:
        patch = self.part()
        if self.chance(0.2):
            places = [value for _, value in changes.paths(patch) if isinstance(value, dict)]
            place = self.random.choice(places or [patch])
            name = self.random.choice(
                ("$patch", "$patch", "$retainKeys", "$deleteFromPrimitiveList/x")
            )
            values = ("delete", "replace", "merge", "x") if name == "$patch" else (["a"], "x", [])
            place[name] = self.random.choice(values)
        return self.patched("strategic patch", patch, STRATEGIC)

    def part(self) -> dict[str, Any]:
        """A few fields of a sample, changed."""
        whole = self.sample("one", most=0)
        part: dict[str, Any] = {}
        for _ in range(self.random.choice((1, 1, 2))):
            how, path, new = changes.edit(self.random, whole)
            if any(isinstance(each, int) for each in path):
                top = path[: next(i for i, each in enumerate(path) if isinstance(each, int))]
                new = changes.at(changes.changed(whole, [(how, path, new)]), top)
                path = top
            inner = part
            for each in path[:-1]:
                inner = inner.setdefault(each, {})
                if not isinstance(inner, dict):
                    break
            else:
                inner[str(path[-1])] = None if how == "drop" else new
        if self.chance(0.1):
            part.setdefault("metadata", {})
            if isinstance(part["metadata"], dict):
                part["metadata"]["resourceVersion"] = self.random.choice(("@RV@", "@OLD@", "x"))
        return part

    def apply(self) -> Request:
        name = self.a_name()
        obj = self.sample(name, most=self.random.choice((0, 0, 1, 2)))
        if self.chance(0.97):
            obj |= {"apiVersion": self.known["apiVersion"], "kind": self.known["kind"]}
        if self.chance(0.5):
            inner = [path for path, _ in changes.paths(obj) if len(path) > 1]
            gone = [path for path in inner if path != ("metadata", "name")]
            obj = changes.changed(obj, [("drop", self.random.choice(gone), None)] if gone else [])
        path, verb = f"{self.collection}/{name}", "apply"
        if self.known.get("status") and self.chance(0.15):
            path, verb = f"{path}/status", "apply status"
            obj["status"] = {"conditions": [{"type": self.random.choice("AB"), "status": "True"}]}
        made = self.written(verb, "PATCH", path, obj, APPLY)
        query = {"fieldManager": self.random.choice("ab"), **made.query}
        if self.chance(0.3):
            query["force"] = "true"
        if self.chance(0.03):
            del query["fieldManager"]
        return attrs.evolve(made, query=query)

    def delete(self) -> Request:
        options: dict[str, Any] = {}
        if self.chance(0.3):
            options["gracePeriodSeconds"] = self.random.choice((0, 0, 5, -1, "x"))
        if self.chance(0.3):
            ways = ("Background", "Foreground", "Orphan", "x")
            options["propagationPolicy"] = self.random.choice(ways)
        if self.chance(0.1):
            options["orphanDependents"] = self.random.choice((True, False))
        if self.chance(0.1):
            options["dryRun"] = self.random.choice((["All"], ["x"], "All", []))
        path = f"{self.collection}/{self.a_name()}"
        if self.chance(0.5):
            query = {key: str(value) for key, value in options.items() if key != "dryRun"}
            return Request(f"{self.plural} delete", "DELETE", path, query)
        if self.chance(0.3):
            values = ({"uid": "@UID@"}, {"resourceVersion": "@RV@"}, {"uid": "x"}, {"odd": 1})
            options["preconditions"] = self.random.choice(values)
        if self.chance(0.5):
            options |= {"kind": "DeleteOptions", "apiVersion": "v1"}
        made = self.written("delete", "DELETE", path, options)
        return attrs.evolve(made, query={})

    def purge(self) -> Request:
        selectors = ("app=a", "app!=a", "x in (", "nope=x")
        query = {"labelSelector": self.random.choice(selectors[1 if self.cluster else 0 :])}
        if self.cluster:
            query = {"labelSelector": f"episode={self.name}"}
        return Request(f"{self.plural} deletecollection", "DELETE", self.collection, query)

    def get(self) -> Request:
        path = f"{self.collection}/{self.a_name()}"
        if self.known.get("status") and self.chance(0.2):
            path += "/status"
        accepted = self.random.choice(("", "", TABLE, PARTIAL, "application/yaml", PARTIALS))
        headers = {"Accept": accepted} if accepted else {}
        query = {"resourceVersion": "0"} if self.chance(0.1) else {}
        return Request(f"{self.plural} get", "GET", path, query, headers)

    def list(self) -> Request:
        query = {}
        if self.chance(0.3) and not self.cluster:
            query["limit"] = self.random.choice(("1", "2", "0", "-1", "x"))
        if self.chance(0.3):
            query["labelSelector"] = self.random.choice(
                ("app=a", "app in (a,b)", "!app", "a==", "=")
            )
        if self.chance(0.3):
            fields = ("metadata.name=one", "metadata.namespace!=x", "odd=1", "status.phase=Pending")
            query["fieldSelector"] = self.random.choice((*fields, "metadata.name", "type=Opaque"))
        if self.chance(0.15):
            query["resourceVersion"] = self.random.choice(("0", "x", "@RV@"))
        if self.chance(0.1):
            query["resourceVersionMatch"] = self.random.choice(("Exact", "NotOlderThan", "x"))
        if self.chance(0.03):
            query["continue"] = "x"
        accepted = self.random.choice(("", "", "", TABLE, PARTIALS, PARTIAL))
        headers = {"Accept": accepted} if accepted else {}
        return Request(f"{self.plural} list", "GET", self.collection, query, headers)

    def scale(self) -> Request:
        name = self.a_name()
        path, about = f"{self.collection}/{name}/scale", f"{self.plural} scale"
        if self.chance(0.3):
            return Request(about, "GET", path)
        spec = {"replicas": self.random.choice((0, 1, 5, -1, "x", None, 2**31))}
        if self.chance(0.5):
            made = self.written("scale", "PATCH", path, {"spec": spec}, MERGE)
        else:
            meta = {"name": name} if self.cluster else {"name": name, "namespace": self.name}
            whole = {
                "kind": "Scale",
                "apiVersion": "autoscaling/v1",
                "metadata": meta,
                "spec": spec,
            }
            made = self.written("scale", "PUT", path, whole)
        return made

    def path(self) -> Request:
        """A method or a path that hardly anybody uses."""
        method = self.random.choice(("POST", "PUT", "PATCH", "DELETE", "GET", "OPTIONS"))
        below = self.random.choice(
            ("", "/one", "/one/odd", "/one/status", "/one/status/x", "/one/log")
        )
        headers = {"Content-Type": MERGE if method == "PATCH" else JSON}
        if method == "DELETE" and (not below or self.cluster):
            method = "POST"
        body = "{}" if method in ("POST", "PUT", "PATCH") else ""
        path = f"{self.collection}{below}"
        return Request(f"{self.plural} path", method, path, {}, headers, body)


def episodes(seed: int, count: int) -> Iterator[Episode]:
    """The episodes of a seed; every kind comes once before any comes again."""
    random = Random(seed)
    order = sorted(SAMPLES)
    for number in range(count):
        if number % len(order) == 0:
            random.shuffle(order)
        yield Episode(random, f"fuzz-{seed}-{number}", order[number % len(order)])
