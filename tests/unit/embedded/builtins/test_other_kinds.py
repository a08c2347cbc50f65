"""Namespaces, nodes, events, PriorityClasses and LimitRanges on the server."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import EVENTS, NAMESPACES, PODS, PRIORITY_CLASSES
from kueuelib.api.meta import ObjectKey


async def test_a_namespace_is_active_labelled_and_held(writer) -> None:
    found = await writer.namespace("n")
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert found["spec"] == {"finalizers": ["kubernetes"]}
    assert found["status"] == {"phase": "Active"}


async def test_the_name_label_of_a_namespace_cannot_be_lost(writer) -> None:
    found = await writer.namespace("n")
    found["metadata"]["labels"] = {"a": "b"}
    found = await writer.service.update(NAMESPACES, found)
    assert found["metadata"]["labels"] == {"a": "b", "kubernetes.io/metadata.name": "n"}


async def test_a_deleted_namespace_terminates_and_goes_when_it_is_finalized(writer) -> None:
    await writer.namespace("n")
    await writer.service.delete(NAMESPACES, ObjectKey("", "n"))
    found = await writer.service.get(NAMESPACES, ObjectKey("", "n"))
    assert found["status"]["phase"] == "Terminating"
    found["spec"]["finalizers"] = []
    unchanged = await writer.service.update(NAMESPACES, found)
    assert unchanged["spec"]["finalizers"] == ["kubernetes"]
    await writer.service.update(NAMESPACES, found, subresource="finalize")
    names = [ns["metadata"]["name"] for ns in (await writer.service.list(NAMESPACES)).items]
    assert "n" not in names


async def test_names_of_namespaces_are_labels(writer) -> None:
    message = await writer.refusal(writer.namespace("a.b"))
    assert 'metadata.name: Invalid value: "a.b": must not contain dots' in message


async def test_a_node_can_allocate_its_capacity(writer) -> None:
    found = await writer.node("n", status={"capacity": {"cpu": "2"}})
    assert found["status"]["allocatable"] == {"cpu": "2"}


async def test_taints_have_known_effects(writer) -> None:
    message = await writer.refusal(
        writer.node("n", spec={"taints": [{"key": "k", "effect": "No"}]})
    )
    assert 'metadata.taints[0].effect: Unsupported value: "No"' in message


@pytest.mark.parametrize(("namespace", "fine"), [("default", True), ("", True), ("other", False)])
async def test_an_event_lives_beside_its_object(writer, namespace, fine) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace},
    }
    creation = writer.service.create(EVENTS, event)
    if fine:
        assert (await creation)["metadata"]["name"] == "e"
    else:
        message = await writer.refusal(creation)
        assert "involvedObject.namespace" in message
        assert "does not match event.namespace" in message


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("system-mine", 1, "reserved for system use only"),
        ("big", 1_000_000_001, "maximum allowed value of a user defined priority is 1000000000"),
    ],
)
async def test_priorities_of_the_system_are_not_for_users(writer, name, value, text) -> None:
    assert text in await writer.refusal(writer.priority_class(name, value))


async def test_the_value_of_a_priority_class_is_fixed(writer) -> None:
    found = await writer.priority_class("p", 5)
    found["value"] = 6
    message = await writer.refusal(writer.service.update(PRIORITY_CLASSES, found))
    assert "value: Forbidden: may not be changed in an update." in message


def pod_resources(pod):
    return pod["spec"]["containers"][0]["resources"]


async def test_a_limit_range_gives_defaults_to_containers(writer) -> None:
    await writer.limits(
        {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}
    )
    assert pod_resources(await writer.pod()) == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}


async def test_what_a_container_says_itself_stays(writer) -> None:
    await writer.limits({"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}})
    resources = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}
    pod = await writer.pod(containers=[{"name": "c", "image": "i", "resources": resources}])
    assert pod_resources(pod) == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }


async def test_the_maximum_is_the_default_limit_and_request(writer) -> None:
    found = await writer.limits(
        {"type": "Container", "max": {"cpu": "4"}, "min": {"memory": "1Mi"}}
    )
    (item,) = found["spec"]["limits"]
    assert item["default"] == {"cpu": "4"}
    assert item["defaultRequest"] == {"cpu": "4", "memory": "1Mi"}


@pytest.mark.parametrize(
    ("item", "resources", "text"),
    [
        (
            {"type": "Container", "max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}},
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            {"type": "Container", "min": {"cpu": "1"}},
            {"requests": {"cpu": "100m"}},
            "minimum cpu usage per Container is 1, but request is 100m",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.0",
        ),
        (
            {"type": "Pod", "max": {"cpu": "1"}},
            {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}},
            "maximum cpu usage per Pod is 1, but limit is 2",
        ),
    ],
)
async def test_pods_beyond_the_limits_are_forbidden(writer, item, resources, text) -> None:
    await writer.limits(item)
    containers = [{"name": "c", "image": "i", "resources": resources}]
    message = await writer.refusal(writer.pod(containers=containers))
    assert message.startswith('pods "p" is forbidden: ')
    assert text in message
    assert (await writer.service.list(PODS)).items == ()


async def test_a_limit_range_that_contradicts_itself_is_refused(writer) -> None:
    item = {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}
    assert "is greater than" in await writer.refusal(writer.limits(item))
