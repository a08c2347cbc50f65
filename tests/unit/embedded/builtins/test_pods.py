"""Pods as the server defaults, refuses and changes them."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import ObjectKey, find_condition
from kueuelib.embedded.verbs import DeleteOptions


def container(**fields):
    return {"name": "c", "image": "i:1", **fields}


async def test_a_pod_gets_the_defaults_of_kubernetes(writer) -> None:
    pod = await writer.pod(containers=[container(resources={"limits": {"cpu": "1"}})])
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["serviceAccountName"] == "default"
    assert spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert [found["key"] for found in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    (found,) = spec["containers"]
    assert found["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert found["imagePullPolicy"] == "IfNotPresent"
    assert found["terminationMessagePath"] == "/dev/termination-log"
    assert pod["status"] == {"phase": "Pending", "qosClass": "Burstable"}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("i", "Always"),
        ("i:latest", "Always"),
        ("host:5000/i", "Always"),
        ("i:1", "IfNotPresent"),
        ("i@sha256:abc", "IfNotPresent"),
        (f"i@sha256:{'0' * 64}", "IfNotPresent"),
        (f"i:latest@sha256:{'0' * 64}", "Always"),
    ],
)
async def test_the_pull_policy_follows_the_tag(writer, image, policy) -> None:
    pod = await writer.pod(containers=[{"name": "c", "image": image}])
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        (
            {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            "Burstable",
        ),
    ],
)
async def test_the_quality_of_service_follows_the_resources(writer, resources, expected) -> None:
    pod = await writer.pod(containers=[container(resources=resources)])
    assert pod["status"]["qosClass"] == expected


async def test_a_gated_pod_is_born_with_the_condition_that_says_so(writer) -> None:
    pod = await writer.pod(schedulingGates=[{"name": "example.com/g"}])
    found = find_condition(pod["status"]["conditions"], "PodScheduled")
    assert (found["status"], found["reason"]) == ("False", "SchedulingGated")


REFUSED = [
    ({"containers": []}, "spec.containers: Required value"),
    ({"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value"),
    ({"containers": [{"image": "i"}]}, "spec.containers[0].name: Required value"),
    (
        {"containers": [container(), container()]},
        'spec.containers[1].name: Duplicate value: "c"',
    ),
    (
        {"containers": [container(name="C")]},
        'spec.containers[0].name: Invalid value: "C": a lowercase RFC 1123 label must consist',
    ),
    (
        {"restartPolicy": "Sometimes"},
        (
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", '
            '"OnFailure", "Never"'
        ),
    ),
    (
        {"containers": [container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})]},
        (
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or '
            "equal to cpu limit of 1"
        ),
    ),
    (
        {"containers": [container(resources={"requests": {"cpu": "-1"}})]},
        (
            'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than '
            "or equal to 0"
        ),
    ),
    (
        {"containers": [container(resources={"requests": {"gpus": "1"}})]},
        'requests[gpus]: Invalid value: "gpus": must be a standard resource for containers',
    ),
    (
        {"containers": [container(resources={"requests": {"example.com/gpu": "1"}})]},
        (
            "spec.containers[0].resources.limits: Required value: Limit must be set for non "
            "overcommitable resources"
        ),
    ),
    (
        {"containers": [container(resources={"limits": {"example.com/gpu": "500m"}})]},
        (
            'spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "500m": must be '
            "an integer"
        ),
    ),
    ({"nodeSelector": {"a b": "c"}}, 'spec.nodeSelector: Invalid value: "a b": name part must'),
    (
        {"schedulingGates": [{"name": "a"}, {"name": "a"}]},
        'spec.schedulingGates[1]: Duplicate value: "a"',
    ),
    (
        {"schedulingGates": [{"name": "a"}], "nodeName": "n"},
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    ),
    ({"tolerations": [{"operator": "Equal"}]}, "operator must be Exists when `key` is empty"),
    (
        {"containers": [container(volumeMounts=[{"name": "v", "mountPath": "/v"}])]},
        'spec.containers[0].volumeMounts[0].name: Not found: "v"',
    ),
    (
        {
            "containers": [
                container(volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "../w"}])
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
        "volumeMounts[0].subPath: Invalid value: \"../w\": must not contain '..'",
    ),
    (
        {
            "volumes": [
                {"name": "v", "secret": {"secretName": "s", "items": [{"key": "k", "path": "/w"}]}}
            ]
        },
        'items[0].path: Invalid value: "/w": must be a relative path',
    ),
    ({"activeDeadlineSeconds": 0}, "must be between 1 and 2147483647, inclusive"),
]


@pytest.mark.parametrize(("spec", "text"), REFUSED, ids=[text[:50] for _, text in REFUSED])
async def test_a_pod_that_breaks_a_rule_is_refused_in_the_words_of_kubernetes(
    writer, spec, text
) -> None:
    message = await writer.refusal(writer.pod(**spec))
    assert message.startswith('Pod "p" is invalid: ')
    assert text in message


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"containers": {}},
            (
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers "
                "of type []v1.Container"
            ),
        ),
        ({"containers": ["c"]}, "unmarshal string into Go struct field PodSpec.spec.containers"),
        ({"containers": [{"stdin": 1}]}, "Go struct field Container.spec.containers.stdin of type"),
        ({"terminationGracePeriodSeconds": "1"}, "of type int64"),
        (
            {"containers": [container(resources={"requests": {"cpu": "one"}})]},
            "quantities must match the regular expression",
        ),
    ],
)
async def test_a_pod_with_a_field_of_the_wrong_type_cannot_be_read(writer, spec, text) -> None:
    message = await writer.refusal(writer.pod(**spec))
    assert message.startswith('Pod in version "v1" cannot be handled as a Pod: ')
    assert text in message


ALLOWED_CHANGES = {
    "image": lambda spec: spec["containers"][0].update(image="i:2"),
    "fewer gates": lambda spec: spec["schedulingGates"].pop(),
    "narrower selector while gated": lambda spec: spec.update(nodeSelector={"a": "b"}),
    "another toleration": lambda spec: spec["tolerations"].append(
        {"key": "k", "operator": "Exists"}
    ),
    "a deadline": lambda spec: spec.update(activeDeadlineSeconds=5),
    "affinity while gated": lambda spec: spec.update(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                    ]
                }
            }
        }
    ),
}


@pytest.mark.parametrize("name", ALLOWED_CHANGES)
async def test_what_may_change_of_a_gated_pod(writer, name) -> None:
    pod = await writer.pod(schedulingGates=[{"name": "a"}, {"name": "b"}])
    changed = await writer.change(PODS, pod, lambda pod: ALLOWED_CHANGES[name](pod["spec"]))
    assert changed["metadata"]["resourceVersion"] != "0"
    assert changed["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("gates", "edit", "text"),
    [
        (
            [{"name": "a"}],
            lambda spec: spec["schedulingGates"].append({"name": "b"}),
            (
                "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new "
                "scheduling gate 'b'"
            ),
        ),
        (
            [],
            lambda spec: spec.update(schedulingGates=[{"name": "b"}]),
            "only deletion is allowed, but found new scheduling gate 'b'",
        ),
        (
            [],
            lambda spec: spec.update(nodeSelector={"a": "b"}),
            "spec: Forbidden: pod updates may not change fields other than",
        ),
        (
            [],
            lambda spec: spec.update(nodeName="n"),
            "spec: Forbidden: pod updates may not change fields other than",
        ),
        (
            [],
            lambda spec: spec["containers"].append({"name": "d", "image": "i"}),
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        (
            [],
            lambda spec: spec["tolerations"][0].update(operator="Equal", value="x"),
            "existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            [],
            lambda spec: spec["containers"][0].update(resources={"requests": {"cpu": "1"}}),
            "spec: Forbidden: pod updates may not change fields other than",
        ),
    ],
)
async def test_what_may_not_change_of_a_pod(writer, gates, edit, text) -> None:
    pod = await writer.pod(schedulingGates=gates)
    assert text in await writer.refusal(writer.change(PODS, pod, lambda pod: edit(pod["spec"])))


async def test_the_selector_of_a_gated_pod_may_only_grow(writer) -> None:
    pod = await writer.pod(schedulingGates=[{"name": "a"}], nodeSelector={"a": "b"})
    message = await writer.refusal(
        writer.change(PODS, pod, lambda pod: pod["spec"].update(nodeSelector={"a": "c"}))
    )
    assert "spec.nodeSelector: Invalid value" in message
    assert "only additions to spec.nodeSelector are allowed (no mutations or deletions)" in message


async def test_a_pod_that_was_never_bound_is_deleted_at_once(writer) -> None:
    await writer.pod()
    await writer.service.delete(PODS, ObjectKey("default", "p"), DeleteOptions())
    assert (await writer.service.list(PODS)).items == ()


async def test_a_bound_pod_is_deleted_after_its_grace_period(writer) -> None:
    await writer.pod(nodeName="n", terminationGracePeriodSeconds=7)
    found = await writer.service.delete(PODS, ObjectKey("default", "p"), DeleteOptions())
    assert found["metadata"]["deletionGracePeriodSeconds"] == 7
    await writer.service.delete(PODS, ObjectKey("default", "p"), DeleteOptions(grace_period=0))
    assert (await writer.service.list(PODS)).items == ()


async def test_a_pod_gets_the_number_of_its_priority_class(writer) -> None:
    await writer.priority_class("high", 1000, preemptionPolicy="Never")
    spec = (await writer.pod(priorityClassName="high"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


async def test_a_pod_without_a_class_gets_the_global_default(writer) -> None:
    await writer.priority_class("usual", 7, globalDefault=True)
    spec = (await writer.pod())["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)
    text = await writer.refusal(writer.priority_class("other", 8, globalDefault=True))
    assert "is already marked as default" in text


async def test_the_system_priority_classes_exist(writer) -> None:
    spec = (await writer.pod(priorityClassName="system-node-critical"))["spec"]
    assert spec["priority"] == 2_000_001_000


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        ({"priority": 5}, "the integer value of priority (5) must not be provided in pod spec"),
    ],
)
async def test_a_priority_out_of_nothing_is_forbidden(writer, spec, text) -> None:
    message = await writer.refusal(writer.pod(**spec))
    assert message.startswith('pods "p" is forbidden: ')
    assert text in message


async def test_quantities_are_stored_in_one_way(writer) -> None:
    resources = {"requests": {"cpu": 1, "memory": "1024Mi"}, "limits": {"cpu": "2000m"}}
    pod = await writer.pod(containers=[container(resources=resources)])
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "2"},
    }


async def test_null_is_the_same_as_absent(writer) -> None:
    pod = await writer.pod(nodeSelector=None, restartPolicy=None, containers=[container(env=None)])
    assert "nodeSelector" not in pod["spec"]
    assert pod["spec"]["restartPolicy"] == "Always"
    assert "env" not in pod["spec"]["containers"][0]


@pytest.mark.parametrize("empty", [{"nodeSelector": {}}, {"volumes": []}, {"affinity": None}])
async def test_empty_is_the_same_as_absent_in_a_change(writer, empty) -> None:
    pod = await writer.pod()
    changed = await writer.change(PODS, pod, lambda pod: pod["spec"].update(empty))
    assert changed["metadata"]["uid"] == pod["metadata"]["uid"]
