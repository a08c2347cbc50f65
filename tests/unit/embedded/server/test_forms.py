"""Small languages of the API: paths, media types, JSONPath, lengths of time."""

from __future__ import annotations

import ssl
import time

import pytest

from kueuelib.api.phrases import duration
from kueuelib.embedded.credentials import credentials
from kueuelib.embedded.http.answers import VIEWS, MediaForm, negotiate, warning_headers
from kueuelib.embedded.http.requests import Route, parse
from kueuelib.embedded.registry.cells import JsonPath, node_status
from kueuelib.embedded.registry.kinds import version_rank
from kueuelib.embedded.writing import generate_name
from kueuelib.errors import NotAcceptable


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/api/v1/pods", Route("", "v1", "", "pods")),
        ("/api/v1/namespaces/a", Route("", "v1", "", "namespaces", "a")),
        ("/api/v1/namespaces/a/finalize", Route("", "v1", "", "namespaces", "a", "finalize")),
        ("/api/v1/namespaces/a/pods/b/log", Route("", "v1", "a", "pods", "b", "log")),
        ("/apis/g.x/v2/namespaces/a/things/", Route("g.x", "v2", "a", "things")),
        ("/apis/g.x/v2/things/t/x/y", Route("g.x", "v2", "", "things", "t", "x", ("y",))),
        ("/apis/g.x/v2", Route("g.x", "v2")),
        ("/apis/g.x", None),
        ("/version", None),
    ],
)
def test_a_path_says_what_is_meant(path, route):
    assert parse(path) == route


TABLE = MediaForm("application/json", "Table", "meta.k8s.io", "v1")


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", MediaForm()),
        ("*/*", MediaForm()),
        ("application/vnd.kubernetes.protobuf, application/json", MediaForm()),
        ("application/yaml", MediaForm("application/yaml")),
        ("application/yaml;q=0.5, application/json", MediaForm()),
        ("application/json;as=Table;v=v1;g=meta.k8s.io, application/json", TABLE),
        ("application/json;as=Odd;v=v1;g=meta.k8s.io, application/json", MediaForm()),
    ],
)
def test_the_best_form_that_can_be_given_is_chosen(accept, wanted):
    assert negotiate(accept, VIEWS) == wanted


@pytest.mark.parametrize("accept", ["text/html", "application/json;as=Table;v=v1;g=meta.k8s.io"])
def test_a_form_that_cannot_be_given_is_not_acceptable(accept):
    with pytest.raises(NotAcceptable):
        negotiate(accept)


DATA = {
    "a": {"b.c": 1, "list": [{"type": "x", "n": 1}, {"type": "y", "n": 2, "on": True}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.list[0].n", [1]),
        (".a.list[-1].n", [2]),
        (".a.list[9].n", []),
        (".a.list[*].n", [1, 2]),
        (".a.b\\.c", [1]),
        (".a['b.c']", [1]),
        (".a.list[?(@.type=='y')].n", [2]),
        ('.a.list[?(@.type == "x")].n', [1]),
        (".a.list[?(@.n!=1)].type", ["y"]),
        (".a.list[?(@.on==true)].type", ["y"]),
        ("{.a.list[0].type}", ["x"]),
        (".a.none.deeper", []),
    ],
)
def test_a_json_path_finds(path, found):
    assert JsonPath(path).find(DATA) == found


@pytest.mark.parametrize("path", [".a[", ".a..b", ".a[?(@.b>1)]", ".a b"])
def test_a_json_path_that_is_not_understood_is_refused(path):
    with pytest.raises(ValueError, match="unsupported JSONPath"):
        JsonPath(path)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (205, "3m25s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (4 * 3600 + 120, "4h2m"),
        (47 * 3600, "47h"),
        (49 * 3600, "2d1h"),
        (10 * 86400, "10d"),
        (800 * 86400, "2y70d"),
        (4000 * 86400, "10y"),
        (-5, "<invalid>"),
    ],
)
def test_ages_are_printed_like_kubectl_does(seconds, text):
    assert duration(seconds) == text


def test_versions_are_ordered_by_their_maturity():
    names = ["v1beta1", "v2", "v1alpha1", "v1", "v1beta2", "v10", "odd"]
    ordered = sorted(names, key=version_rank, reverse=True)
    assert ordered == ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "odd"]


def test_generated_names_stay_short_enough_for_a_label():
    assert len(generate_name("x" * 100)) == 63


def test_warnings_cannot_break_out_of_their_header():
    headers = warning_headers(['say "hi"\r\nX: y', "twice", "twice"])
    assert headers == [
        ("Warning", '299 - "say \\"hi\\"X: y"'),
        ("Warning", '299 - "twice"'),
    ]


def test_certificates_stand_up_to_strict_checks():
    found = credentials(time.time(), ("127.0.0.1", "localhost"), "admin", "masters")
    client = ssl.create_default_context(cadata=found.ca.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = found.server_context()
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    right = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (left, right):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert left.getpeercert()["subjectAltName"] == (
        ("IP Address", "127.0.0.1"),
        ("DNS", "localhost"),
    )


@pytest.mark.parametrize(
    ("status", "text"), [("True", "Ready"), ("False", "NotReady"), ("Unknown", "NotReady")]
)
def test_a_node_whose_kubelet_is_silent_is_not_ready(status: str, text: str) -> None:
    node = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    assert node_status(node, 0.0) == text
    assert node_status({**node, "spec": {"unschedulable": True}}, 0.0).startswith(f"{text},")
    assert node_status({}, 0.0) == "Unknown"
