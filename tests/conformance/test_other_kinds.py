"""ConfigMaps, Secrets, Services, Deployments, and what only a kubelet could answer."""

from __future__ import annotations

import pytest

CORE = "/api/v1/namespaces/default"
MAPS, SECRETS, SERVICES, PODS = (
    f"{CORE}/{each}" for each in ("configmaps", "secrets", "services", "pods")
)
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONTAINER = {"name": "c", "image": "i"}
BINDING = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}


def named(name="a", **fields):
    return {"metadata": {"name": name}, **fields}


def fields_of(found):
    assert found.status == 422, found
    return [each["field"] for each in found.body["details"]["causes"]]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (MAPS, named(data={"a b": "1"}), "data[a b]"),
        (MAPS, named(data={"..": "1"}), "data[..]"),
        (MAPS, named(data={"x" * 254: "1"}), f"data[{'x' * 254}]"),
        (MAPS, named(data={"a": "1"}, binaryData={"a": "MQ=="}), "data[a]"),
        (MAPS, named(data={"a": "x" * (2**20 + 1)}), "[]"),
        (SECRETS, named(data={"a b": "MQ=="}), "data[a b]"),
        (SECRETS, named(type="kubernetes.io/tls", data={"tls.crt": "MQ=="}), "data[tls.key]"),
        (
            SECRETS,
            named(type="kubernetes.io/service-account-token"),
            "metadata.annotations[kubernetes.io/service-account.name]",
        ),
        (SERVICES, named(spec={}), "spec.ports"),
        (SERVICES, named(spec={"ports": [{"port": 0, "targetPort": 1}]}), "spec.ports[0].port"),
        (
            SERVICES,
            named(spec={"ports": [{"port": 1, "targetPort": 65536}]}),
            "spec.ports[0].targetPort",
        ),
        (
            SERVICES,
            named(spec={"ports": [{"port": 80, "protocol": "X"}]}),
            "spec.ports[0].protocol",
        ),
        (SERVICES, named(spec={"type": "Odd", "ports": [{"port": 80}]}), "spec.type"),
        (SERVICES, named(spec={"type": "ExternalName"}), "spec.externalName"),
        (
            SERVICES,
            named(spec={"ports": [{"port": 80, "name": "a"}, {"port": 81}]}),
            "spec.ports[1].name",
        ),
    ],
)
async def test_a_rule_is_kept(api, path, body, field):
    assert fields_of(await api.post(path, body)) == [field]


async def test_bytes_of_a_secret_are_base64(api):
    found = await api.post(SECRETS, named(data={"a": "no base64!"}))
    assert found.status == 400
    assert "illegal base64 data" in found.body["message"]


async def test_texts_of_a_secret_become_data(api):
    made = (await api.post(SECRETS, named(stringData={"a": "b"}, data={"c": "ZA=="}))).body
    assert made["data"] == {"a": "Yg==", "c": "ZA=="}
    assert (made["type"], "stringData" in made) == ("Opaque", False)
    changed = (await api.patch(f"{SECRETS}/a", {"stringData": {"a": "x"}})).body
    assert changed["data"] == {"a": "eA==", "c": "ZA=="}
    typed = await api.patch(f"{SECRETS}/a", {"type": "other"})
    assert fields_of(typed) == ["type"]


@pytest.mark.parametrize("path", [MAPS, SECRETS])
async def test_what_is_immutable_stays(api, path):
    value = "MQ=="
    await api.post(path, named(data={"a": value}, immutable=True))
    assert fields_of(await api.patch(f"{path}/a", {"data": {"a": "Mg=="}})) == ["data"]
    assert fields_of(await api.patch(f"{path}/a", {"immutable": False})) == ["immutable"]
    labelled = await api.patch(f"{path}/a", {"metadata": {"labels": {"x": "y"}}})
    assert labelled.status == 200


async def test_a_service_gets_an_address_and_keeps_it(api):
    spec = {"ports": [{"port": 80}], "selector": {"a": "b"}}
    made = (await api.post(SERVICES, named(spec=spec))).body
    assert made["spec"]["type"] == "ClusterIP"
    assert made["spec"]["clusterIP"].startswith("10.96.")
    assert made["spec"]["clusterIPs"] == [made["spec"]["clusterIP"]]
    assert made["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    replaced = await api.put(f"{SERVICES}/a", named(spec=spec))
    assert replaced.body["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    moved = await api.patch(f"{SERVICES}/a", {"spec": {"clusterIP": "10.96.9.9"}})
    assert "spec.clusterIPs[0]" in fields_of(moved)


async def test_a_headless_service_has_no_address(api):
    made = (await api.post(SERVICES, named(spec={"clusterIP": "None"}))).body
    assert made["spec"]["clusterIP"] == "None"


def deployment(**spec):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
    return named(spec={"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec})


async def test_a_deployment_has_defaults(api):
    spec = (await api.post(DEPLOYMENTS, deployment())).body["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"selector": None}, "spec.selector"),
        ({"selector": {}}, "spec.selector"),
        ({"selector": {"matchLabels": {"x": "y"}}}, "spec.template.metadata.labels"),
        ({"replicas": -1}, "spec.replicas"),
        ({"strategy": {"type": "Odd"}}, "spec.strategy"),
    ],
)
async def test_a_deployment_keeps_its_rules(api, change, field):
    assert field in fields_of(await api.post(DEPLOYMENTS, deployment(**change)))


async def test_the_selector_of_a_deployment_stays(api):
    await api.post(DEPLOYMENTS, deployment())
    other = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    found = await api.patch(f"{DEPLOYMENTS}/a", {"spec": {"selector": other}})
    assert "spec.selector" in fields_of(found)


async def running(api, **spec):
    made = await api.post(PODS, named(spec={"containers": [CONTAINER], **spec}))
    assert made.status == 201
    await api.post(f"{PODS}/a/binding", BINDING)
    await api.patch(f"{PODS}/a/status", {"status": {"phase": "Running"}})


@pytest.mark.embedded
async def test_the_log_of_a_pod_is_empty_text(api):
    await running(api)
    found = await api.get(f"{PODS}/a/log", params={"follow": "true"})
    assert (found.status, found.text) == (200, "")
    assert found.headers["content-type"].startswith("text/plain")
    wrong = await api.get(f"{PODS}/a/log", params={"container": "x"})
    assert wrong.body["message"] == "container x is not valid for pod a"
    assert (await api.get(f"{PODS}/none/log")).status == 404
    assert (await api.post(f"{PODS}/a/log", {})).status == 405


@pytest.mark.embedded
async def test_the_log_of_one_of_several_containers_has_to_be_chosen(api):
    await running(api, containers=[CONTAINER, {**CONTAINER, "name": "d"}])
    found = await api.get(f"{PODS}/a/log")
    assert found.status == 400
    assert found.body["message"] == (
        "a container name must be specified for pod a, choose one of: [c d]"
    )


@pytest.mark.embedded
async def test_the_log_of_a_pending_pod_waits(api):
    await running(api)
    await api.patch(f"{PODS}/a/status", {"status": {"phase": "Pending"}})
    found = await api.get(f"{PODS}/a/log")
    assert found.body["message"] == (
        'container "c" in pod "a" is waiting to start: ContainerCreating'
    )


@pytest.mark.parametrize("what", ["exec", "attach", "portforward", "proxy", "proxy/x/y"])
@pytest.mark.embedded
async def test_nothing_runs_in_the_containers(api, what):
    await api.post(PODS, named(spec={"containers": [CONTAINER]}))
    unbound = await api.get(f"{PODS}/a/{what}")
    assert (unbound.status, unbound.body["message"]) == (400, "pod a does not have a host assigned")
    await api.post(f"{PODS}/a/binding", BINDING)
    found = await api.get(f"{PODS}/a/{what}")
    assert found.status == 500
    assert found.body["message"].startswith("error dialing backend: ")


NOT_FIRST = "first value must match `clusterIP`"
NO_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
FIXED = "may not change once set"
AFFINITY = 'Unsupported value: "x": supported values: "ClientIP", "None"'
SERVICES = "/api/v1/namespaces/default/services"


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        (
            {"externalIPs": ["x"], "ipFamilies": ["IPv7"], "clusterIPs": ["a", "b", "c"]},
            [
                f'spec.clusterIPs: Invalid value: ["a","b","c"]: {NOT_FIRST}',
                'spec.ipFamilies[0]: Unsupported value: "IPv7": supported values: "IPv4", "IPv6"',
                *(
                    f'spec.clusterIPs[{i}]: Invalid value: "{each}": {NO_IP}'
                    for i, each in enumerate("abc")
                ),
                'spec.clusterIPs: Invalid value: ["a","b","c"]: may only hold up to 2 values',
            ],
        ),
        (
            {"clusterIP": "1.2.3.4", "sessionAffinity": "x"},
            [
                f'spec.clusterIPs[0]: Invalid value: ["1.2.3.4"]: {FIXED}',
                f"spec.sessionAffinity: {AFFINITY}",
            ],
        ),
        (
            {"type": "Foo", "sessionAffinity": "x"},
            [
                f"spec.sessionAffinity: {AFFINITY}",
                (
                    'spec.type: Unsupported value: "Foo": supported values: "ClusterIP", '
                    '"ExternalName", "LoadBalancer", "NodePort"'
                ),
            ],
        ),
        (
            {"externalIPs": ["x", "127.0.0.1", "0.0.0.0", "224.0.0.1", "169.254.1.1"]},
            [
                f'spec.externalIPs[0]: Invalid value: "x": {NO_IP}',
                (
                    'spec.externalIPs[1]: Invalid value: "127.0.0.1": may not be in the loopback '
                    "range (127.0.0.0/8, ::1/128)"
                ),
                'spec.externalIPs[2]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)',
                (
                    'spec.externalIPs[3]: Invalid value: "224.0.0.1": may not be in the link-local '
                    "multicast range (224.0.0.0/24, ff02::/10)"
                ),
                (
                    'spec.externalIPs[4]: Invalid value: "169.254.1.1": may not be in the '
                    "link-local range (169.254.0.0/16, fe80::/10)"
                ),
            ],
        ),
        ({"ipFamilies": ["IPv4", "IPv4"]}, ['spec.ipFamilies[1]: Duplicate value: "IPv4"']),
        (
            {"ipFamilies": ["IPv4", "IPv6"]},
            [
                (
                    'spec.ipFamilyPolicy: Invalid value: "SingleStack": must be '
                    "'RequireDualStack' or 'PreferDualStack' when multiple IP families are "
                    "specified"
                )
            ],
        ),
        (
            {"ipFamilyPolicy": "Foo"},
            [
                (
                    'spec.ipFamilyPolicy: Unsupported value: "Foo": supported values: '
                    '"PreferDualStack", "RequireDualStack", "SingleStack"'
                )
            ],
        ),
        (
            {"internalTrafficPolicy": "Foo"},
            [
                (
                    'spec.internalTrafficPolicy: Unsupported value: "Foo": supported values: '
                    '"Cluster", "Local"'
                )
            ],
        ),
        (
            {"clusterIPs": ["1.2.3.4"]},
            [f'spec.clusterIPs: Invalid value: ["1.2.3.4"]: {NOT_FIRST}'],
        ),
    ],
)
async def test_what_a_service_may_not_become(api, change, causes):
    made = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    assert (await api.post(SERVICES, made)).status == 201
    found = await api.patch(f"{SERVICES}/s", {"spec": change})
    assert found.status == 422
    told = found.body["details"]["causes"]
    assert [f"{each['field']}: {each['message']}" for each in told] == causes


async def test_the_family_of_an_address_does_not_change(api):
    made = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    address = (await api.post(SERVICES, made)).body["spec"]["clusterIP"]
    found = await api.patch(f"{SERVICES}/s", {"spec": {"ipFamilies": ["IPv6"]}})
    (cause,) = found.body["details"]["causes"]
    text = f'Invalid value: "{address}": expected an IPv6 value as indicated by `ipFamilies[0]`'
    assert (cause["field"], cause["message"]) == ("spec.clusterIPs[0]", text)
