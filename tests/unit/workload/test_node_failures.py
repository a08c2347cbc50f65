"""When the nodes of a Workload have failed, and which of its pods end then."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.core import Toleration
from kueuelib.api.meta import Obj, format_time
from kueuelib.scheduler.settings import NodeFailureRules
from kueuelib.workload import states
from kueuelib.workload.node_failures import (
    SEVERAL,
    Hosts,
    Judgement,
    hosts_of,
    judge,
)

NOW = 1_700_000_000.0
HOST, KUEUE = "kubernetes.io/hostname", "kueue.x-k8s.io"
CLOSED = {"key": "maintenance", "effect": "NoSchedule"}
DRAINED = {"key": "drain", "effect": "NoExecute"}
SOFT = {"key": "slow", "effect": "PreferNoSchedule"}
ANY = Toleration(operator="Exists")
A_WHILE = Toleration(key="drain", operator="Exists", toleration_seconds=60)
PLACES = {"main": frozenset("ab"), "launcher": frozenset("b")}


def node(name: str, ready: str | None = "True", *taints: Obj, since: float = NOW) -> Obj:
    at = format_time(since)
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": at}
    status = {"conditions": [condition] if ready else []}
    return {"metadata": {"name": name}, "spec": {"taints": [*taints]}, "status": status}


def pod(host: str, *, bound: bool = True, gated: bool = False, leaving: bool = False) -> Obj:
    meta: Obj = {"name": f"on-{host}", "labels": {f"{KUEUE}/podset": "main"}}
    if leaving:
        meta["deletionTimestamp"] = format_time(NOW)
    spec: Obj = {"nodeSelector": {HOST: host}}
    if bound:
        spec["nodeName"] = host
    if gated:
        spec["schedulingGates"] = [{"name": f"{KUEUE}/topology"}]
    return {"metadata": meta, "spec": spec}


def workload(*listed: str) -> Obj:
    metadata = {"name": "wl", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    kind = {"apiVersion": f"{KUEUE}/v1beta2", "kind": "Workload", "metadata": metadata}
    wl = {**kind, "spec": {"podSets": []}, "status": {}}
    wl = states.reserve(wl, {"clusterQueue": "cq"}, [], NOW)
    return states.mark_unhealthy(wl, listed)


def judged(
    *pods: Obj,
    listed: str = "",
    rules: NodeFailureRules | None = None,
    tolerations: tuple[Toleration, ...] = (),
    **nodes: Any,
) -> Judgement:
    """The judgement if `a` is like that, and `b` is healthy unless it is given."""
    known = {"b": [node("b")], **nodes}
    hosts = Hosts(lambda host: known.get(host, ()), lambda _: tolerations, pods)
    return judge(workload(*listed), PLACES, hosts, NOW, rules or NodeFailureRules())


@pytest.mark.parametrize("bad", [(), [node("a", None)]])
def test_a_node_that_is_gone_or_says_nothing_has_failed_at_once(bad: Any) -> None:
    assert judged(pod("a"), a=bad) == Judgement(("a",))


@pytest.mark.parametrize(
    ("bad", "tolerated"),
    [
        (node("a", "False"), ()),
        (node("a", "Unknown"), (ANY,)),
        (node("a", "True", CLOSED), ()),
        (node("a", "True", SOFT, DRAINED), ()),
        (node("a", "True", DRAINED), (A_WHILE,)),
    ],
)
def test_a_node_has_failed_once_no_pod_runs_there(bad: Obj, tolerated: Any) -> None:
    def failed(*pods: Obj) -> tuple[str, ...]:
        return judged(*pods, pod("b"), tolerations=tolerated, a=[bad]).failed

    assert failed() == failed(pod("a", leaving=True)) == ("a",)
    assert failed(pod("a")) == ()


@pytest.mark.parametrize(
    ("taints", "tolerated"),
    [((SOFT,), ()), ((CLOSED, DRAINED), (ANY,)), ((CLOSED,), (ANY, A_WHILE))],
)
def test_taints_that_keep_no_pod_away_do_not_count(taints: Any, tolerated: Any) -> None:
    waits = pod("a", bound=False)
    assert judged(waits, tolerations=tolerated, a=[node("a", "True", *taints)]) == Judgement()


def test_all_pod_sets_of_a_node_have_to_tolerate_its_taints() -> None:
    known = {"a": [node("a", "True", CLOSED)], "b": [node("b", "True", CLOSED)]}
    tolerations = {"main": (ANY,), "launcher": ()}
    hosts = Hosts(known.__getitem__, tolerations.__getitem__, ())
    assert judge(workload(), PLACES, hosts, NOW, NodeFailureRules()).failed == ("b",)


def test_one_of_several_nodes_of_a_host_is_enough() -> None:
    assert judged(a=[node("a", "False"), node("x")]) == Judgement()
    assert judged(a=[node("a", "False"), node("x", None)]).failed == ("a",)
    assert judged({**pod("a"), "spec": {"nodeName": "x"}}, a=[node("x", "False")]).failed == ()


def test_pods_that_wait_for_a_closed_node_end_and_others_do_not() -> None:
    waits, running = pod("a", bound=False), pod("a")
    others = (pod("b", bound=False), pod("a", bound=False, gated=True), running)
    leaving = pod("a", bound=False, leaving=True)
    found = judged(waits, *others, leaving, a=[node("a", "False")])
    assert found == Judgement((), "", (waits,))
    assert judged(waits, a=[]) == Judgement(("a",), "", (waits,))


def test_a_pod_may_start_on_a_node_that_it_tolerates_for_a_while() -> None:
    waits = pod("a", bound=False)
    drained = [node("a", "True", DRAINED)]
    assert judged(waits, tolerations=(A_WHILE,), a=drained) == Judgement()
    assert judged(waits, a=drained).ending == (waits,)


def test_a_pod_ends_that_waits_where_its_pod_set_has_no_place() -> None:
    lost = pod("c", bound=False)
    assert judged(lost, pod("c"), a=[node("a")]).ending == (lost,)
    foreign = {**lost, "metadata": {"name": "x", "labels": {}}}
    assert judged(foreign, a=[node("a")]).ending == ()


def test_several_failed_nodes_evict() -> None:
    gone: Any = {"a": (), "b": ()}
    assert judged(pod("a", bound=False), **gone) == Judgement(eviction=f"{SEVERAL}a, b")
    assert judged(listed="b", **gone) == Judgement(eviction=f"{SEVERAL}b, a")
    evicted = judged(**gone).applied(workload(), NOW)
    assert states.condition(evicted, "Evicted")["reason"] == "NodeFailures"
    both = judged(listed="ba", **gone)  # another manager said so
    assert (both.failed, both.eviction) == (("b", "a"), "")


def test_a_node_that_returns_is_no_longer_listed() -> None:
    assert judged(listed="a", a=[node("a")]).failed == ()
    assert judged(listed="ac", b=(), a=[node("a")]).failed == ("b",)
    assert judged(pod("a"), listed="a", a=[node("a", "False")]).failed == ()
    marked = workload("a")
    assert judged(listed="a", a=()).applied(marked, NOW) is marked


def test_rules_change_when_a_node_has_failed() -> None:
    here = pod("a")
    early, late = node("a", "False", since=NOW - 29), node("a", "False", since=NOW - 30)
    at_once = NodeFailureRules(waits_for_pods=False)
    assert judged(here, rules=at_once, a=[early]) == Judgement(look_again=NOW + 1)
    assert judged(here, rules=at_once, a=[late]).failed == ("a",)
    assert judged(here, rules=at_once, a=[node("a", "True", CLOSED)]).failed == ("a",)
    timed = NodeFailureRules(not_ready_too_long=True)
    assert judged(here, rules=timed, a=[early]) == Judgement(look_again=NOW + 1)
    assert judged(rules=timed, a=[early]).failed == ("a",)
    assert judged(here, rules=timed, a=[late]).failed == ("a",)
    without = NodeFailureRules(taints=False)
    assert judged(rules=without, a=[node("a", "True", CLOSED)]) == Judgement()


def test_only_assignments_of_hosts_count() -> None:
    from kueuelib.api.codec import decode
    from kueuelib.api.workload import PodSetAssignment

    def assigned(name: str, level: str) -> PodSetAssignment:
        values, counts = [{"universal": "a"}], {"universal": 1}
        one = {"domainCount": 1, "valuesPerLevel": values, "podCounts": counts}
        placed = {"levels": [level], "slices": [one]}
        return decode(PodSetAssignment, {"name": name, "topologyAssignment": placed})

    none = decode(PodSetAssignment, {"name": "none"})
    assert hosts_of([assigned("x", HOST), assigned("y", "rack"), none]) == {"x": frozenset("a")}
