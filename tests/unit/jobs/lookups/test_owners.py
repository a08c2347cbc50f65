from __future__ import annotations

import attrs
import pytest

from kueuelib.api.meta import ObjectKey, key_of
from kueuelib.api.names import PARENT_WORKLOAD
from kueuelib.jobs import BatchJob, JobWithSkip
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.lookups.owners import DefaultQueues, Owners, with_default_queue
from kueuelib.jobs.lookups.stores import (
    OWNER_NAME,
    OWNER_UID,
    JobStores,
    owner_names,
    owner_uids,
)
from kueuelib.jobs.pods.statefulset import STATEFULSET
from kueuelib.machinery.store import Store


class Everywhere(DefaultQueues):
    """Each namespace has a default queue."""

    def __init__(self):
        """Without LocalQueues."""

    def given(self, obj, namespace):
        return with_default_queue(obj)


def store(*objs):
    found = Store()
    for obj in objs:
        found.put(key_of(obj), obj)
    return found


def owners(jobs=(), workloads=(), settings=None, classes=(), kinds=(BATCH_JOB, STATEFULSET)):
    indexed = Store({OWNER_UID: owner_uids, OWNER_NAME: owner_names})
    for workload in workloads:
        indexed.put(key_of(workload), workload)
    named = store(*({"metadata": {"name": name}} for name in classes))
    stores = JobStores({"batch/job": store(*jobs)}, indexed, store(), named, store())
    return Owners(kinds, stores, settings or JobSettings(), default_queues=Everywhere())


def child_of(build, parent, name="child", uid=None, **fields):
    ref = {
        "apiVersion": "batch/v1beta1",
        "kind": "Job",
        "name": parent["metadata"]["name"],
        "uid": uid or parent["metadata"]["uid"],
        "controller": True,
    }
    meta = {"name": name, "uid": f"{name}-uid", "ownerReferences": [ref]}
    return build.job(queue=None, meta=meta, **fields)


def ask(found, child):
    return found.ancestor_of(child, "ns")


def test_a_job_without_an_owner_stands_for_itself(build):
    assert ask(owners(), build.job()) is None


@pytest.mark.parametrize("admitted", [True, False])
def test_a_child_waits_for_the_workload_of_its_owner(build, admitted):
    parent = build.job()
    workload = build.workload(parent, admitted=admitted)
    found = ask(owners([parent], [workload]), child_of(build, parent))
    assert found.admitted is admitted
    assert found.name == "Job ns/job"


def test_a_workload_that_only_refers_to_an_owner_admits_no_child(build):
    parent = build.job()
    workload = build.workload(parent, admitted=True)
    del workload["metadata"]["ownerReferences"][0]["controller"]
    assert ask(owners([parent], [workload]), child_of(build, parent)).admitted is False


def test_a_child_of_a_queued_owner_without_a_workload_waits(build):
    parent = build.job()
    assert ask(owners([parent]), child_of(build, parent)).admitted is False


def test_an_owner_that_is_not_queued_does_not_count(build):
    parent = build.job(queue=None)
    child = child_of(build, parent)
    assert ask(owners([parent]), child) is None
    everything = JobSettings(manage_jobs_without_queue_name=True)
    assert ask(owners([parent], settings=everything), child).admitted is False


class Skipping(BatchJob, JobWithSkip):
    def skip(self):
        return self.spec.get("parallelism") == 0


def test_an_owner_that_its_kind_skips_does_not_count(build):
    """It gets no Workload, so its children would never run."""
    kind = attrs.evolve(BATCH_JOB, job_type=Skipping)
    top = build.job(meta={"name": "top", "uid": "top-uid"})
    for skipped in (True, False):
        parent = child_of(build, top, "parent", parallelism=0 if skipped else 1)
        parent["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "main"}
        for jobs, found in (([parent], None), ([parent, top], "Job ns/top")):
            asked = owners(jobs, kinds=[kind]).ancestor_of(child_of(build, parent), "ns")
            wanted = found if skipped or found else "Job ns/parent"
            assert (asked and asked.name) == wanted


def test_an_owner_of_the_same_name_and_another_uid_does_not_count(build):
    parent = build.job()
    assert ask(owners([parent]), child_of(build, parent, uid="old")) is None


def test_an_owner_that_is_not_the_controller_does_not_count(build):
    parent, other = build.job(), build.job(queue=None, meta={"name": "other", "uid": "other-uid"})
    child = child_of(build, parent)
    (ref,) = child["metadata"]["ownerReferences"]
    ref["controller"] = False
    assert ask(owners([parent, other]), child) is None
    controller = child_of(build, other)["metadata"]["ownerReferences"]
    child["metadata"]["ownerReferences"] = [ref, *controller]
    assert ask(owners([parent, other]), child) is None


def test_the_highest_queued_owner_counts(build):
    top = build.job(meta={"name": "top", "uid": "top-uid"})
    middle = child_of(build, top, "middle")
    middle["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "main"}
    bottom = child_of(build, middle, "bottom")
    found = ask(owners([top, middle], [build.workload(top, admitted=True)]), bottom)
    assert (found.name, found.admitted) == ("Job ns/top", True)


def test_owners_that_go_in_a_circle_are_followed_only_so_far(build):
    one = build.job(queue=None, meta={"name": "one", "uid": "one-uid"})
    two = child_of(build, one, "two")
    one["metadata"]["ownerReferences"] = [
        {**two["metadata"]["ownerReferences"][0], "name": "two", "uid": "two-uid"}
    ]
    assert ask(owners([one, two]), one) is None


class Foreign:
    """Knows one object."""

    def __init__(self, known):
        self.known = known
        self.asked = []

    def get(self, ref):
        return self.known if ref["uid"] == self.known["metadata"]["uid"] else None

    async def learn(self, ref, namespace):
        self.asked.append((ref["name"], namespace))
        return self.get(ref)


def test_an_owner_of_another_kind_in_between_is_followed(build):
    """Pods of a RayCluster that a RayJob has made."""
    parent = build.job()
    between = child_of(build, parent, "between")
    jobs = {"batch/job": store(parent)}
    indexed = Store({OWNER_UID: owner_uids, OWNER_NAME: owner_names})
    stores = JobStores(jobs, indexed, store(), store(), store())
    pod = child_of(build, between, "pod")
    pod["metadata"]["ownerReferences"][0].update(apiVersion="ray.io/v1", kind="RayCluster")
    found = ask(Owners([BATCH_JOB], stores, JobSettings(), Foreign(between)), pod)
    assert found.name == "Job ns/job"
    assert ask(Owners([BATCH_JOB], stores, JobSettings()), pod) is None


def test_children_of_a_kind_that_another_process_queues_wait_for_its_workload(build):
    train = build.job(meta={"name": "train", "uid": "train-uid"})
    pod = child_of(build, train, "pod")
    pod["metadata"]["ownerReferences"][0].update(apiVersion="example.com/v1", kind="Train")
    indexed = Store({OWNER_UID: owner_uids, OWNER_NAME: owner_names})
    stores = JobStores({}, indexed, store(), store(), store())
    external = Owners([], stores, EXTERNAL, Foreign(train))
    assert ask(external, pod).admitted is False
    workload = build.workload(train, admitted=True)
    indexed.put(key_of(workload), workload)
    assert ask(external, pod).admitted is True
    unnamed = {**train, "metadata": {**train["metadata"], "labels": {}}}
    assert ask(Owners([], stores, EXTERNAL, Foreign(unnamed)), pod) is None
    assert ask(Owners([], stores, JobSettings(), Foreign(train)), pod) is None


async def test_an_owner_of_an_enabled_kind_whose_objects_are_not_known_is_read_by_itself(build):
    parent = build.job()
    objects = {}
    indexed = Store({OWNER_UID: owner_uids, OWNER_NAME: owner_names})
    stores = JobStores(objects, indexed, store(), store(), store())
    foreign = Foreign(parent)
    found = Owners([BATCH_JOB], stores, JobSettings(), foreign)
    child = child_of(build, parent)
    await found.learn(child, "ns")
    assert foreign.asked == [("job", "ns")]
    assert ask(found, child).admitted is False
    objects["batch/job"] = store()
    await found.learn(child, "ns")
    assert foreign.asked == [("job", "ns")]
    assert ask(found, child) is None, "the store knows better"


# ---- the annotation


def declared(build, *owner_uids_of_child):
    refs = [{"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": u} for u in owner_uids_of_child]
    return build.job(
        queue=None, annotations={PARENT_WORKLOAD: "parent"}, meta={"ownerReferences": refs}
    )


def parent_workload(build, uid, admitted=True):
    found = build.workload(build.job(), name="parent", admitted=admitted)
    found["metadata"]["ownerReferences"] = [
        {"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": uid}
    ]
    return found


@pytest.mark.parametrize(
    ("uid", "admitted", "expected"),
    [("x", True, True), ("x", False, False), ("other", True, False)],
)
def test_a_declared_parent_is_believed_when_both_have_the_same_owner(
    build, uid, admitted, expected
):
    found = ask(owners((), [parent_workload(build, uid, admitted)]), declared(build, "x"))
    assert found.admitted is expected


def test_a_declared_parent_that_does_not_exist_admits_nothing(build):
    assert ask(owners(), declared(build, "x")).admitted is False


def test_only_a_believable_parent_lets_a_job_in_as_a_child(build):
    child = declared(build, "x")
    assert owners((), [parent_workload(build, "x")]).is_child(child, "ns")
    assert owners((), [parent_workload(build, "x", admitted=False)]).is_child(child, "ns")
    assert not owners((), [parent_workload(build, "other")]).is_child(child, "ns")
    assert not owners().is_child(child, "ns")
    assert ask(owners(), child).doubt == "which does not exist"
    parent = build.job()
    assert owners([parent]).is_child(child_of(build, parent), "ns")
    assert not owners().is_child(parent, "ns")


def test_workloads_are_found_by_the_kind_and_name_of_their_owner(build):
    workload = build.workload(build.job())
    assert owner_names(workload) == (("ns", "batch", "Job", "job"),)
    assert owner_uids(workload) == ("job-uid",)
    assert key_of(workload) == ObjectKey("ns", "job-job-12345")


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "p", "uid": "u", "controller": True}
FOREIGN = {**OWNER, "apiVersion": "example.com/v1", "kind": "Train"}
SET = {**OWNER, "apiVersion": "apps/v1", "kind": "StatefulSet"}
OFF = JobSettings(defaults_priority_class=False)
EXTERNAL = JobSettings(external_kinds=frozenset({("example.com", "Train")}))
DEFAULT_CLASS = {
    "the class exists": (JobSettings(), ["high", "default"], None, True),
    "there are others only": (JobSettings(), ["high"], None, False),
    "turned off": (OFF, ["default"], None, False),
    "an owner that is no controller": (
        JobSettings(),
        ["default"],
        {**OWNER, "controller": False},
        True,
    ),
    "a controller of an enabled kind": (JobSettings(), ["default"], OWNER, False),
    "a controller whose pods are queued as a group": (JobSettings(), ["default"], SET, False),
    "a controller of a foreign kind": (JobSettings(), ["default"], FOREIGN, True),
    "a controller that another process queues": (EXTERNAL, ["default"], FOREIGN, False),
}


@pytest.mark.parametrize(
    ("settings", "classes", "owner", "wanted"), DEFAULT_CLASS.values(), ids=[*DEFAULT_CLASS]
)
def test_who_gets_the_default_class(build, settings, classes, owner, wanted):
    job = build.job(meta={"ownerReferences": [owner]} if owner else {})
    assert owners(settings=settings, classes=classes).default_class_for(job) is wanted


OWNERS = {
    "none": (JobSettings(), None, True),
    "one that is no controller": (JobSettings(), {**OWNER, "controller": False}, True),
    "a controller of an enabled kind": (JobSettings(), OWNER, False),
    "a controller whose pods are queued as a group": (JobSettings(), SET, False),
    "a controller of a foreign kind": (JobSettings(), FOREIGN, True),
    "a controller that another process queues": (EXTERNAL, FOREIGN, False),
    "one of another group": (JobSettings(), {**OWNER, "apiVersion": "example.com/v1"}, True),
}


@pytest.mark.parametrize(("settings", "owner", "wanted"), OWNERS.values(), ids=[*OWNERS])
def test_children_of_kinds_that_are_queued_get_no_default_queue(build, settings, owner, wanted):
    job = build.job(queue=None, meta={"ownerReferences": [owner]} if owner else {})
    found = owners(settings=settings).queued_by_default(job, "ns")
    assert (found is not job) is wanted
