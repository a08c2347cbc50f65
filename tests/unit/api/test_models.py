"""Models of generated packages and raw JSON: what is unknown or unchanged stays as it came."""

from __future__ import annotations

import copy
import inspect
import re
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes_asyncio import client as k8s

from kueuelib.api.codec import decode, encode
from kueuelib.api.forms import raw_of, resource_of, typed_of
from kueuelib.api.kueue import ClusterQueue
from kueuelib.api.meta import Obj, copied, is_true, key_of, labels_of, owner_reference
from kueuelib.api.models import decode_model, encode_model, is_model, without_models
from kueuelib.errors import ConfigError, InvalidObject

WHOLE = {"api_version", "kind", "metadata"}


def _paths() -> dict[str, set[str]]:
    """The URLs at which the generated APIs create objects of each class."""
    found: dict[str, set[str]] = {}
    for api in vars(k8s).values():
        if not isinstance(api, type) or not api.__name__.endswith("Api"):
            continue
        for part in inspect.getsource(api).split("\n    def "):
            call = re.search(r"call_api\(\s*'([^']+)', 'POST'", part)
            body = re.search(r":type body: (\w+)", part)
            if call and body and part.startswith("create"):
                found.setdefault(body[1], set()).add(call[1])
    return found


def test_every_class_of_a_kind_has_its_url() -> None:
    checked = 0
    for name, urls in _paths().items():
        if not set(getattr(getattr(k8s, name, None), "openapi_types", ())) >= WHOLE:
            continue
        kind = resource_of(getattr(k8s, name))
        under = kind.path("{namespace}") if kind.namespaced else kind.path()
        virtual = kind.kind in ("Eviction", "TokenRequest")
        assert virtual or under in urls, f"{name}: {under} is not one of {urls}"
        assert f"{kind.kind}" == re.sub(r"^\D*V\d+((alpha|beta)\d+)?", "", name)
        checked += 1
    assert checked > 90


def test_a_piece_and_a_list_are_no_kinds() -> None:
    for cls in (k8s.V1PodSpec, k8s.V1PodList, k8s.V1ObjectMeta):
        with pytest.raises(ConfigError, match=f"{cls.__name__}: is not the class of a kind"):
            resource_of(cls)


POD: Obj = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "a",
        "namespace": "n",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"a": "b"},
        "unknown": {"x": [1, {"y": None}]},
    },
    "spec": {
        "containers": [
            {"name": "one", "image": "x", "fresh": 1, "resources": {"limits": {"cpu": 1}}},
            {"name": "two", "ports": [{"containerPort": 80, "fresh": True}]},
        ],
        "nodeName": None,
        "fresh": "kept",
    },
    "status": {"conditions": [{"type": "Ready", "status": "True", "fresh": 3}]},
    "further": [],
}


def test_what_nobody_changed_is_written_as_it_came() -> None:
    before = copied(POD)
    pod = typed_of(k8s.V1Pod, POD)
    assert isinstance(pod, k8s.V1Pod)
    assert raw_of(pod) == before
    assert raw_of(copy.deepcopy(pod)) == before
    assert before == POD


def test_changes_are_written_and_unknown_fields_stay() -> None:
    before, pod = copied(POD), typed_of(k8s.V1Pod, POD)
    one, two = pod.spec.containers
    one.image = "y"
    pod.metadata.labels["c"] = "d"
    pod.metadata.creation_timestamp = datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
    pod.spec.containers = [k8s.V1Container(name="new"), two, one]
    pod.status.conditions[0].status = "False"
    wanted = copied(before)
    meta, spec = wanted["metadata"], wanted["spec"]
    meta["labels"]["c"] = "d"
    meta["creationTimestamp"] = "2026-01-02T03:04:06Z"
    first, second = spec["containers"]
    spec["containers"] = [{"name": "new"}, second, {**first, "image": "y"}]
    wanted["status"]["conditions"][0]["status"] = "False"
    assert raw_of(pod) == wanted
    assert before == POD, "what came from a cache is not changed"


def test_a_field_that_is_taken_away_is_gone() -> None:
    pod = typed_of(k8s.V1Pod, POD)
    pod.metadata.labels = None
    pod.status = None
    raw = raw_of(pod)
    assert "labels" not in raw["metadata"]
    assert "status" not in raw


def test_a_new_object_says_its_kind() -> None:
    made = k8s.V1Deployment(metadata=k8s.V1ObjectMeta(name="d"))
    wanted = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    assert raw_of(made) == wanted
    event = k8s.EventsV1Event(event_time=datetime(2026, 1, 1, tzinfo=UTC))
    assert raw_of(event)["apiVersion"] == "events.k8s.io/v1"
    assert raw_of(event)["eventTime"] == "2026-01-01T00:00:00.000000Z", "the server wants six"


def test_models_may_stand_in_raw_json_and_raw_json_in_models() -> None:
    spec = k8s.V1JobSpec(template={"spec": {"restartPolicy": "Never"}}, backoff_limit=0)
    job = {"kind": "Job", "metadata": k8s.V1ObjectMeta(name="j"), "spec": [spec]}
    template = {"spec": {"restartPolicy": "Never"}}
    wanted = {
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": [{"template": template, "backoffLimit": 0}],
    }
    assert without_models(job) == wanted
    assert raw_of(job) == wanted
    assert without_models(POD) is POD


def test_an_object_that_its_class_would_refuse_is_read() -> None:
    raw = {"metadata": {"name": "e"}, "eventTime": None}
    assert decode_model(k8s.EventsV1Event, raw).event_time is None


class Mine(k8s.V1Pod):
    """A subclass of a user."""

    @property
    def images(self) -> list[str]:
        return [each.image for each in self.spec.containers]


def test_a_class_of_a_user_on_top_of_a_model_works_like_it() -> None:
    assert resource_of(Mine) == resource_of(k8s.V1Pod)
    mine = typed_of(Mine, POD)
    assert mine.images == ["x", None]
    assert raw_of(mine) == POD


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"spec": []}, "spec: Invalid value: spec must be of type object"),
        ({"spec": {"containers": [{"name": "a"}, 3]}}, "spec.containers[1]"),
        ({"metadata": {"labels": {"a": {}}}}, "metadata.labels[a]"),
        ({"metadata": {"creationTimestamp": "soon"}}, "must be of type date-time"),
    ],
)
def test_a_field_of_another_type_is_named(raw: Obj, said: str) -> None:
    with pytest.raises(InvalidObject, match=re.escape(said)):
        decode_model(k8s.V1Pod, raw)


def test_what_has_no_form_in_json_is_named() -> None:
    meta = k8s.V1ObjectMeta(name="a", creation_timestamp=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidObject, match=r"metadata\.creationTimestamp.* has no time zone"):
        encode_model(k8s.V1Pod(metadata=meta))
    env = [k8s.V1EnvVar(name="a", value=object())]
    spec = k8s.V1PodSpec(containers=[k8s.V1Container(name="c", env=env)])
    with pytest.raises(InvalidObject, match=r"spec\.containers\[0\]\.env\[0\]\.value"):
        encode_model(k8s.V1Pod(spec=spec))


def test_only_objects_are_objects() -> None:
    assert not is_model(k8s.V1Pod)
    assert not is_model(ClusterQueue.new("a"))
    assert raw_of(ClusterQueue.new("a"))["kind"] == "ClusterQueue"
    with pytest.raises(ConfigError, match="is not an object; give raw JSON"):
        raw_of(3)  # type: ignore[arg-type]


# ---- the law ------------------------------------------------------------------------------------

ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("uv", min_size=1), inner),
    max_leaves=4,
)
TIMES = st.sampled_from(
    ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z", "2026-01-01T02:00:00+02:00"]
)


def _values(kind: str, depth: int) -> st.SearchStrategy[Any]:
    if kind.startswith("list["):
        return st.lists(_values(kind[5:-1], depth), max_size=2)
    if kind.startswith("dict("):
        inner = _values(kind.partition(", ")[2][:-1], depth)
        return st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=2)
    plain = {
        "str": st.text("xyz", max_size=2) | st.integers(0, 3),  # such as a quantity
        "int": st.integers(0, 9),
        "float": st.floats(0, 1),
        "bool": st.booleans(),
        "datetime": TIMES,
        "object": ANY,
    }
    return plain[kind] if kind in plain else _objects(getattr(k8s, kind), depth - 1)


@cache
def _objects(cls: Any, depth: int) -> st.SearchStrategy[Obj]:
    kinds = cls.openapi_types.items() if depth > 0 else ()
    known = {cls.attribute_map[name]: st.none() | _values(kind, depth) for name, kind in kinds}
    few = st.fixed_dictionaries({}, optional=known)
    return st.builds(dict.__or__, st.dictionaries(st.just("new"), ANY, max_size=1), few)


@pytest.mark.parametrize("cls", [k8s.V1Pod, k8s.V1Job, k8s.V1CustomResourceDefinition, k8s.V1Lease])
@settings(max_examples=30)
@given(data=st.data())
def test_an_object_survives_its_model(cls: Any, data: st.DataObject) -> None:
    raw = data.draw(_objects(cls, 3))
    before = copied(raw)
    kind = resource_of(cls)
    value = decode_model(cls, raw)
    assert encode_model(value) == {"apiVersion": kind.api_version, "kind": kind.kind, **before}
    assert raw == before


def test_the_models_are_imported_by_nobody_else() -> None:
    program = """
import sys
import kueuelib, kueuelib.runtime.client, kueuelib.runtime.connection, kueuelib.runtime.operator
import kueuelib.jobs.client.following, kueuelib.runtime.kubeconfig, kueuelib.api.forms
print([name for name in sys.modules if name.startswith("kubernetes")])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_decode_and_encode_name_what_does_not_fit() -> None:
    with pytest.raises(InvalidObject, match='kind: Invalid value: "Secret": must be Pod'):
        decode(k8s.V1Pod, {"kind": "Secret"})
    with pytest.raises(ConfigError, match="is not a typed value; give a value of a class"):
        encode({"a": k8s.V1Pod()})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "function", [key_of, labels_of, owner_reference, partial(is_true, type="A")]
)
def test_what_takes_raw_objects_only_says_so(function: Any) -> None:
    with pytest.raises(ConfigError, match=r"a V1Pod: is not raw JSON; encode\(\) it first"):
        function(k8s.V1Pod())
