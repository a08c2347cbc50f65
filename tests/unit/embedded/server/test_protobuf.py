"""Bodies of typed Go clients are read without their types."""

from __future__ import annotations

import pytest

from kueuelib.embedded.http.bodies import parse_protobuf
from kueuelib.errors import BadRequest, UnsupportedMediaType


def varint(number):
    number &= 2**64 - 1
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """One field: an integer, or bytes, or a list of fields of an inner message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = b"".join(value) if isinstance(value, list) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(api_version, kind, *fields):
    head = [field(1, api_version.encode()), field(2, kind.encode())]
    return b"k8s\x00" + field(1, head) + field(2, b"".join(fields))


def test_a_namespace_of_kubectl_has_only_what_was_said():
    sent = bytes.fromhex(
        "6b3873000a0f0a02763112094e616d657370616365121b0a130a03666f6f12001a0022002a0032003800"
        "420012001a020a001a002200"
    )
    assert parse_protobuf(sent) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "foo"},
    }


def test_maps_lists_bytes_and_times_are_read():
    label = field(11, [field(1, b"a"), field(2, b"b")])
    made = field(8, [field(1, 1_600_000_000), field(2, 0)])
    owner = field(13, [field(5, b"c.d/v1"), field(1, b"Box"), field(6, 1), field(7, 0)])
    meta = field(1, [field(1, b"s"), label, made, owner])
    data = field(2, [field(1, b"key"), field(2, b"\x00\xff")])
    found = parse_protobuf(body("v1", "Secret", meta, data))
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["metadata"]["creationTimestamp"] == "2020-09-13T12:26:40Z"
    assert found["data"] == {"key": "AP8="}


def test_zero_stays_where_it_is_a_value():
    spec = field(2, [field(1, 0), field(2, 5), field(7, -1)])
    found = parse_protobuf(body("batch/v1", "Job", spec))
    assert found["spec"] == {"parallelism": 0, "completions": 5, "backoffLimit": -1}


def test_fields_of_embedded_messages_move_up():
    volume = field(1, [field(1, b"v"), field(2, [field(2, [])])])
    port = field(2, [field(2, [field(1, 1), field(3, b"http")])])
    probe = field(10, [field(1, [port])])
    amount = field(1, [field(1, b"cpu"), field(2, [field(1, b"100m")])])
    limits = field(8, [amount])
    container = field(2, [field(1, b"c"), limits, probe])
    found = parse_protobuf(body("v1", "Pod", field(2, [volume, container])))
    assert found["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]
    (inner,) = found["spec"]["containers"]
    assert inner["resources"] == {"limits": {"cpu": "100m"}}
    assert inner["livenessProbe"] == {"httpGet": {"port": "http"}}


def test_options_of_a_deletion_are_read():
    sent = body("v1", "DeleteOptions", field(1, 0), field(4, b"Background"))
    found = parse_protobuf(sent)
    assert found["gracePeriodSeconds"] == 0
    assert found["propagationPolicy"] == "Background"


def test_an_ingress_is_read():
    port = [field(1, b"y"), field(2, [field(1, b"z"), field(2, 80)])]
    backend = [field(4, port)]
    path = [field(1, b"/"), field(2, backend), field(3, b"Prefix")]
    rule = [field(1, b"a.b"), field(2, [field(1, [field(1, path)])])]
    tls = [field(1, b"a"), field(2, b"s")]
    spec = [field(1, backend), field(2, tls), field(3, rule), field(4, b"q")]
    found = parse_protobuf(body("networking.k8s.io/v1", "Ingress", field(2, spec)))
    service = {"service": {"name": "y", "port": {"name": "z", "number": 80}}}
    assert found["spec"] == {
        "defaultBackend": service,
        "tls": [{"hosts": ["a"], "secretName": "s"}],
        "rules": [
            {
                "host": "a.b",
                "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": service}]},
            }
        ],
        "ingressClassName": "q",
    }


def test_a_cron_job_is_read():
    template = [field(1, [field(1, b"t")]), field(2, [field(1, 2)])]
    spec = [field(1, b"* * * * *"), field(2, 7), field(3, b"Allow"), field(4, 1)]
    spec += [field(5, template), field(6, 3), field(7, 1), field(8, b"UTC")]
    found = parse_protobuf(body("batch/v1", "CronJob", field(2, spec)))
    assert found["spec"] == {
        "schedule": "* * * * *",
        "startingDeadlineSeconds": 7,
        "concurrencyPolicy": "Allow",
        "suspend": True,
        "jobTemplate": {"metadata": {"name": "t"}, "spec": {"parallelism": 2}},
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
        "timeZone": "UTC",
    }


def test_unknown_fields_are_skipped():
    meta = field(1, [field(1, b"a"), field(999, b"later"), field(998, 5)])
    found = parse_protobuf(body("v1", "ConfigMap", meta))
    assert found["metadata"] == {"name": "a"}


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"{}",
        b"k8s\x00\x0a\xff",
        b"k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        body("v1", "Pod", b"\x0a\x05abc"),
        body("v1", "Pod", b"\x0f"),
        body("v1", "Pod", field(1, 5)),
        body("v1", "Pod", field(1, [field(1, b"\xff")])),
    ],
)
def test_malformed_bodies_are_refused(sent):
    with pytest.raises(BadRequest):
        parse_protobuf(sent)


def test_kinds_without_a_table_are_named():
    with pytest.raises(UnsupportedMediaType, match="Widget cannot be read from protobuf"):
        parse_protobuf(body("example.com/v1", "Widget"))
