from __future__ import annotations

import hashlib

import pytest

from kueuelib.jobs.pods.shapes import _name_of, role_hash, shape_of

DEFAULT_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for key in ("not-ready", "unreachable")
]


def spec(requests=None, **fields):
    container = {} if requests is None else {"resources": {"requests": requests}}
    return {"containers": [container], **fields}


def prefers(zone):
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {name: [{"weight": 1, "preference": term}]}}


@pytest.mark.parametrize(
    ("found", "digits"),
    [
        (spec({}), "a9f06f3a"),
        (spec({"cpu": "1"}), "dc85db45"),
        (spec(priority=0, tolerations=DEFAULT_TOLERATIONS), "bf90803c"),
        (spec(tolerations=[{"key": "a&b", "operator": "Exists"}]), "7a4e04f2"),
        (spec(tolerations=[{"key": "a<b", "operator": "Exists"}]), "dbee3455"),
        (spec(tolerations=[{"key": "a>b", "operator": "Exists"}]), "95aa1a2f"),
        (spec(affinity=prefers("a\u2028b")), "57d41535"),
        (spec(affinity=prefers("a\u2029b")), "65307c74"),
        (spec(affinity=prefers('é \U0001f600 "q" \\ \t\n\b\f\x07\x7f')), "278608ac"),
        (spec(tolerations=[{"key": "", "operator": "Exists", "tolerationSeconds": 0}]), "78ccc2d9"),
    ],
)
def test_digits_are_those_of_the_go_manager(found, digits):
    assert role_hash(found) == digits


def test_quantities_count_by_value_and_orders_of_keys_do_not_count():
    one = spec({"cpu": "1000m", "memory": "1Gi"}, nodeSelector={"a": "1", "b": "2"})
    other = spec({"memory": "1024Mi", "cpu": "1"}, nodeSelector={"b": "2", "a": "1"})
    assert role_hash(one) == role_hash(other)
    turned = [dict(reversed(each.items())) for each in DEFAULT_TOLERATIONS]
    plain = role_hash(spec(tolerations=DEFAULT_TOLERATIONS))
    assert role_hash(spec(tolerations=turned)) == plain


@pytest.mark.parametrize(
    "change",
    [
        {"priority": 5},
        {"nodeSelector": {"a": "1"}},
        {"runtimeClassName": "kata"},
        {"overhead": {"cpu": "1"}},
        {"initContainers": [{"resources": {"requests": {"cpu": "1"}}}]},
        {"tolerations": [{"key": "<a&b>", "operator": "Exists"}]},
    ],
)
def test_what_a_pod_asks_for_tells_shapes_apart(change):
    assert role_hash(spec({"cpu": "1"}, **change)) != role_hash(spec({"cpu": "1"}))


ZONES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"values": ["a"], "operator": "In", "key": "zone"}]}
            ]
        }
    }
}
APART = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "podAffinityTerm": {
                    "topologyKey": "zone",
                    "labelSelector": {"matchLabels": {"b": "2", "a": "1"}},
                },
                "weight": 0,
            }
        ]
    }
}
SPREAD = {
    "labelSelector": {"matchLabels": {"app": "train"}},
    "whenUnsatisfiable": "DoNotSchedule",
    "topologyKey": "zone",
    "maxSkew": 1,
}
AFFINITY_TEXT = (
    '{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":'
    '[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]}}}'
)
APART_TEXT = (
    '{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":0,'
    '"podAffinityTerm":{"labelSelector":{"matchLabels":{"a":"1","b":"2"}},"topologyKey":"zone"}}]}}'
)
SPREAD_TEXT = (
    '[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule",'
    '"labelSelector":{"matchLabels":{"app":"train"}}}]'
)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("affinity", ZONES, AFFINITY_TEXT),
        ("affinity", APART, APART_TEXT),
        ("topologySpreadConstraints", [SPREAD], SPREAD_TEXT),
        (
            "resourceClaims",
            [{"resourceClaimTemplateName": "gpu", "name": "c"}],
            '[{"name":"c","resourceClaimTemplateName":"gpu"}]',
        ),
        (
            "resourceClaims",
            [{"source": {"resourceClaimName": "gpu"}, "name": "c"}],
            '[{"name":"c","source":{"resourceClaimName":"gpu"}}]',
        ),
    ],
)
def test_affinity_spread_and_claims_are_written_as_go_writes_them(field, value, text):
    assert role_hash(spec(**{field: value})) == digits_of(**{field: text})


def test_requests_of_the_whole_pod_count_and_change_no_other_name():
    whole = {"requests": {"memory": "1024Mi", "cpu": "1000m"}, "limits": {"cpu": "2"}}
    text = '{"cpu":"1","memory":"1Gi"}'
    assert role_hash(spec(resources=whole)) == digits_of(resources=text)
    assert role_hash(spec(resources={"limits": {"cpu": "2"}})) == digits_of(resources="null")
    assert role_hash(spec(resources=None)) == digits_of()


def test_sidecars_count_and_change_no_other_name():
    init, sidecar = {"restartPolicy": "OnFailure"}, {"restartPolicy": "Always"}
    plain = '{"ports":null,"resources":{"requests":null}}'
    always = f'{plain[:-1]},"restartPolicy":"Always"}}'
    for containers, texts in (
        ([{}, init], f"[{plain},{plain}]"),
        ([{}, sidecar], f"[{plain},{always}]"),
        ([sidecar, {}], f"[{always},{plain}]"),
    ):
        assert role_hash(spec(initContainers=containers)) == digits_of(initContainers=texts)


def test_ports_are_written_as_go_writes_them():
    port = {"protocol": "TCP", "containerPort": 80, "hostPort": 8080, "name": "http"}
    text = '[{"name":"http","hostPort":8080,"containerPort":80,"protocol":"TCP"}]'
    assert role_hash({"containers": [{"ports": [port]}]}) == digits_of(ports=text)


def digits_of(ports="null", **fields):
    """The digits of a shape with one container, from the JSON text that Go makes of it."""
    texts = {"containers": f'[{{"ports":{ports},"resources":{{"requests":null}}}}]', **fields}
    names = (
        *("affinity", "containers", "initContainers", "nodeSelector", "overhead", "priority"),
        *("resourceClaims", *({"resources"} & fields.keys())),
        *("runtimeClassName", "tolerations", "topologySpreadConstraints"),
    )
    shape = ",".join(f'"{name}":{texts.get(name, "null")}' for name in names)
    return hashlib.sha256(f'{{"spec":{{{shape}}}}}'.encode()).hexdigest()[:8]


def test_what_a_pod_runs_does_not():
    container = {"name": "x", "image": "i", "args": ["a"], "env": [{"name": "A", "value": "1"}]}
    limits = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    found = {"containers": [{**container, "resources": limits}], "volumes": [{"name": "v"}]}
    assert role_hash(found) == role_hash(spec({"cpu": "1"}))


def test_neither_labels_nor_the_preemption_policy_do(pods):
    plain = pods.waiting(group="g", total=1)
    other = pods.waiting(group="g", total=1, labels={"a": "b"}, preemptionPolicy="Never")
    assert shape_of(plain) == shape_of(other)


def test_the_annotation_of_a_pod_that_has_started_outlives_changes_of_the_spec(pods):
    pod = pods.running(group="g", total=1)
    before = shape_of(pod)
    pod["spec"]["nodeSelector"] = {"added": "by admission"}
    assert shape_of(pod) == before
    del pod["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"]
    assert shape_of(pod) != before


def test_the_shape_of_a_waiting_pod_follows_its_spec(pods):
    pod = pods.waiting(group="g", total=1)
    before = shape_of(pod)
    pod["spec"]["nodeSelector"] = {"added": "by a user"}
    assert shape_of(pod) == role_hash(pod["spec"]) != before


def test_the_shape_of_pods_that_differ_in_their_arguments_is_named_once():
    requests = {"requests": {"cpu": "17"}}
    names = {
        role_hash({"containers": [{"name": "c", "args": [rank], "resources": requests}]})
        for rank in ("0", "1", "2")
    }
    before = _name_of.cache_info().misses
    assert len(names) == 1
    role_hash({"containers": [{"args": ["3"], "resources": requests}]})
    assert _name_of.cache_info().misses == before
