"""Where Services are, for pods that share one loopback interface."""

from __future__ import annotations

from typing import Any

from kueuelib.node.services import ServicePlace, links_of, names_of, places, with_addresses


def service(name: str, *ports: dict[str, Any]) -> dict[str, Any]:
    spec = {"ports": list(ports), "selector": {"app": name}}
    return {"metadata": {"namespace": "n", "name": name}, "spec": spec}


def pod(app: str, address: str, *, ready: bool = True, at: str = "1") -> dict[str, Any]:
    container = {"name": "a", "ports": [{"name": "web", "containerPort": 8080}]}
    return {
        "metadata": {"namespace": "n", "labels": {"app": app}, "creationTimestamp": at},
        "spec": {"containers": [container]},
        "status": {"podIP": address, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


HTTP = {"name": "http", "port": 80, "targetPort": "web"}
WEB = ServicePlace("n", "my-web", "127.64.0.2", (("http", 80, 8080),))


def test_a_service_is_at_its_oldest_ready_pod() -> None:
    known = places(
        [service("my-web", HTTP), service("none", HTTP), service("unready", HTTP)],
        [
            pod("my-web", "127.64.0.1", ready=False),
            pod("my-web", "127.64.0.3", at="3"),
            pod("my-web", "127.64.0.2", at="2"),
            pod("unready", "127.64.0.4", ready=False),
        ],
    )
    assert known == [WEB]
    assert WEB.moved == (("http", 80, 8080),)


def test_its_names_and_variables() -> None:
    assert names_of([WEB], "n") == dict.fromkeys(
        ("my-web", "my-web.n", "my-web.n.svc", "my-web.n.svc.cluster.local"), "127.64.0.2"
    )
    assert "my-web" not in names_of([WEB], "other")
    links = links_of([WEB], "n")
    assert (links["MY_WEB_SERVICE_HOST"], links["MY_WEB_SERVICE_PORT_HTTP"]) == (
        "127.64.0.2",
        "8080",
    )
    assert links["MY_WEB_PORT_80_TCP"] == "tcp://127.64.0.2:8080"
    assert links_of([WEB], "other") == {}


def test_names_in_texts_become_addresses() -> None:
    names = names_of([WEB], "n")
    for text, wanted in (
        ("tcp://my-web:8786", "tcp://127.64.0.2:8786"),
        ("my-web.n.svc.cluster.local:1", "127.64.0.2:1"),
        ("http://my-web.n/x my-web.n.svc", "http://127.64.0.2/x 127.64.0.2"),
        ("my-web not-my-web.n my-web.name", "my-web not-my-web.n my-web.name"),
    ):
        assert with_addresses(text, names) == wanted
