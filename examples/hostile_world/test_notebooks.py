"""Tries both reconcilers of `notebooks.py` in a hostile cluster."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from notebooks import Careful, Reconciler, Trusting, run

from kueuelib.runtime import Obj
from kueuelib.testing import (
    Act,
    ClusterState,
    Commit,
    Draws,
    Storm,
    StormFailed,
    Trial,
    create,
    delete,
    patch,
    trial,
)

CRD = yaml.safe_load(Path(__file__).with_name("crd.yaml").read_text())
NOTEBOOKS = "notebooks.example.com"


def users(draws: Draws) -> Iterator[Act]:
    """Create a few Notebooks; change, delete and disturb some of them later."""
    for number in range(4):
        name = f"book-{number}"
        created = draws.uniform(f"{name}/created", 0.0, 30.0)
        yield create(created, NOTEBOOKS, notebook(name))
        changed = created + draws.scaled(f"{name}/changed", 0.5, 60.0)
        act = draws.choice(f"{name}/act", ("label", "image", "recreate", "pod"))
        if act == "label":
            yield patch(changed, NOTEBOOKS, "default", name, {"metadata": {"labels": {"a": "b"}}})
        elif act == "image":
            yield patch(changed, NOTEBOOKS, "default", name, {"spec": {"image": "python:3.13"}})
        elif act == "recreate":
            yield delete(changed, NOTEBOOKS, "default", name)
            yield create(changed + 1.0, NOTEBOOKS, notebook(name))
        else:
            yield delete(changed, "pods", "default", f"notebook-{name}")


def notebook(name: str) -> Obj:
    """Return a Notebook."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Notebook",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"image": "python:3.12"},
    }


def never_two_pods(commit: Commit, cluster: ClusterState) -> Iterator[str]:
    """No Notebook ever has two Pods."""
    if commit.resource == "pods" and commit.old is None:
        owner = owner_of(commit.present)
        pods = [pod for pod in cluster.objects("pods") if owner_of(pod) == owner]
        if len(pods) > 1:
            yield f"its Notebook has {len(pods)} Pods"


def each_notebook_runs(cluster: ClusterState) -> Iterator[str]:
    """Each Notebook has one Pod with its image, and there are no other Pods."""
    pods = cluster.objects("pods")
    books = {book["metadata"]["uid"]: book for book in cluster.objects(NOTEBOOKS)}
    for uid, book in books.items():
        images = [pod["spec"]["containers"][0]["image"] for pod in pods if owner_of(pod) == uid]
        if images != [book["spec"]["image"]]:
            yield f"{book['metadata']['name']} wants {book['spec']['image']}, has {images}"
    yield from (f"{pod['metadata']['name']} is left" for pod in pods if owner_of(pod) not in books)


def owner_of(pod: Obj) -> str:
    """Return the UID of the Notebook of a Pod."""
    uid: str = pod["metadata"]["ownerReferences"][0]["uid"]
    return uid


def notebooks(reconciler: type[Reconciler]) -> Trial:
    """Return what storms try, with one of the reconcilers."""
    return trial(
        partial(run, reconciler=reconciler),
        objects=[CRD],
        users=users,
        at_commit=[never_two_pods],
        at_rest=[each_notebook_runs],
    )


TRUSTING = notebooks(Trusting)
CAREFUL = notebooks(Careful)


def test_a_reconciler_that_trusts_its_cache_runs_a_notebook_twice(storm: Storm) -> None:
    """Its cache lags behind its own writes."""
    with pytest.raises(StormFailed, match="never-two-pods"):
        storm(TRUSTING, seeds=range(1, 31))


def test_a_careful_reconciler_keeps_both_laws(storm: Storm) -> None:
    """Names are locks, and answers are remembered."""
    result = storm(CAREFUL, seeds=range(1, 16))
    assert sum(result.faults.values()) > 100
