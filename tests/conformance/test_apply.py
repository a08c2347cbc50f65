"""Server-side apply and the owners of fields."""

from __future__ import annotations

APPLY = "application/apply-patch+yaml"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def config(name="a", **data):
    meta = {"name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


async def apply(api, obj, manager, path=MAPS, **params):
    name = obj["metadata"]["name"]
    return await api.patch(f"{path}/{name}", obj, APPLY, params={"fieldManager": manager, **params})


def owners(obj):
    entries = obj["metadata"].get("managedFields", [])
    return {(each["manager"], each["operation"]): each["fieldsV1"] for each in entries}


async def test_an_apply_creates_and_then_changes(api):
    made = await apply(api, config(x="1"), "one")
    assert made.status == 201
    assert owners(made.body) == {("one", "Apply"): {"f:data": {"f:x": {}}}}
    changed = await apply(api, config(x="2"), "one")
    assert changed.status == 200
    assert changed.body["data"] == {"x": "2"}


async def test_the_same_apply_again_changes_nothing(api):
    first = (await apply(api, config(x="1"), "one")).body
    again = (await apply(api, config(x="1"), "one")).body
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_what_is_applied_no_more_goes(api):
    await apply(api, config(x="1", y="2"), "one")
    changed = await apply(api, config(x="1"), "one")
    assert changed.body["data"] == {"x": "1"}


async def test_two_managers_own_what_they_applied(api):
    await apply(api, config(x="1"), "one")
    both = (await apply(api, config(y="2"), "two")).body
    assert both["data"] == {"x": "1", "y": "2"}
    assert set(owners(both)) == {("one", "Apply"), ("two", "Apply")}


async def test_a_finalizer_stays_until_the_last_manager_that_applied_it_gives_it_up(api):
    def held(*names, **meta):
        meta |= {"finalizers": list(names)} if names else {}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **meta}}

    made = (await apply(api, held("a.b/c"), "one")).body["metadata"]
    await api.delete(f"{MAPS}/a")
    both = await apply(api, held("a.b/c", uid=made["uid"]), "two")  # although it is being deleted
    assert set(owners(both.body)) == {("one", "Apply"), ("two", "Apply")}
    refused = await apply(api, held("a.b/d", uid=made["uid"]), "three")
    assert refused.status == 422
    for manager, left in (("one", ["a.b/c"]), ("two", None)):
        answer = await apply(api, held(uid=made["uid"]), manager)
        assert (answer.status, answer.body["metadata"].get("finalizers")) == (200, left)
    gone = await apply(api, held(uid=made["uid"]), "one")
    assert (gone.status, gone.body["reason"]) == (409, "Conflict")
    assert "no existing object was found" in gone.body["message"]
    assert (await api.get(f"{MAPS}/a")).status == 404


async def test_a_field_of_another_is_a_conflict_unless_forced(api):
    await apply(api, config(x="1"), "one")
    refused = await apply(api, config(x="2"), "two")
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert refused.body["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    (cause,) = refused.body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".data.x")
    forced = await apply(api, config(x="2"), "two", force="true")
    assert forced.body["data"] == {"x": "2"}
    assert owners(forced.body) == {("two", "Apply"): {"f:data": {"f:x": {}}}}


async def test_other_writes_are_owned_by_the_program(api):
    made = (await api.post(MAPS, config(x="1"))).body
    assert set(owners(made)) == {("suite", "Update")}
    changed = await api.patch(f"{MAPS}/a", {"data": {"x": "2"}}, params={"fieldManager": "m"})
    assert owners(changed.body)["m", "Update"] == {"f:data": {"f:x": {}}}


async def test_an_apply_needs_a_manager_and_the_right_kind(api):
    nobody = await api.patch(f"{MAPS}/a", config(x="1"), APPLY)
    assert nobody.status == 422
    assert "fieldManager: Required value" in nobody.body["message"]
    for wrong in ({"kind": "Secret"}, {"apiVersion": "v2"}, {"metadata": {"name": "b"}}):
        body = {**config(x="1"), **wrong}
        found = await api.patch(f"{MAPS}/a", body, APPLY, params={"fieldManager": "one"})
        assert found.status == 400


async def test_an_apply_in_yaml_is_read(api):
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n"
    made = await api.patch(f"{MAPS}/a", text, APPLY, params={"fieldManager": "one"})
    assert made.body["data"] == {"x": "1"}


async def test_a_status_is_applied_by_its_own_manager(api):
    container = {"name": "c", "image": "i"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    await apply(api, {**pod, "spec": {"containers": [container]}}, "one", PODS)
    condition = {"type": "example.com/Fed", "status": "True"}
    body = {**pod, "status": {"conditions": [condition]}}
    changed = await api.patch(f"{PODS}/p/status", body, APPLY, params={"fieldManager": "two"})
    assert changed.status == 200
    entry = next(e for e in changed.body["metadata"]["managedFields"] if e["manager"] == "two")
    assert entry["subresource"] == "status"
    types = [each["type"] for each in changed.body["status"]["conditions"]]
    assert "example.com/Fed" in types
    absent = {**body, "metadata": {"name": "none"}}
    found = await api.patch(f"{PODS}/none/status", absent, APPLY, params={"fieldManager": "two"})
    assert found.status == 404


def deployed(*variables):
    pod = {"containers": [{"name": "c", "image": "i", "env": list(variables)}]}
    labels = {"app": "a"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}


async def test_an_item_goes_with_its_key_even_if_another_owns_the_rest(api):
    kept, gone = {"name": "Z", "value": "1"}, {"name": "X", "value": "1"}
    made = (await apply(api, deployed(gone, kept), "one", DEPLOYMENTS)).body
    value: dict = {"f:env": {'k:{"name":"X"}': {".": {}, "f:value": {}}}}
    fields = {"f:template": {"f:spec": {"f:containers": {'k:{"name":"c"}': value}}}}
    other = {"manager": "two", "operation": "Update", "apiVersion": "apps/v1"}
    other |= {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}}
    made["metadata"]["managedFields"].append(other)
    put = await api.put(f"{DEPLOYMENTS}/a", made)
    assert ("two", "Update") in owners(put.body)
    left = (await apply(api, deployed(kept), "one", DEPLOYMENTS)).body
    assert left["spec"]["template"]["spec"]["containers"][0]["env"] == [kept]
    assert ("two", "Update") not in owners(left)


async def test_a_null_takes_a_field_from_its_owner_and_leaves_a_map_alone(api):
    immutable = config(x="1") | {"immutable": False}
    await apply(api, immutable, "one")
    nothing = await apply(api, config() | {"data": None}, "two")
    assert nothing.body["data"] == {"x": "1"}
    refused = await apply(api, config() | {"immutable": None}, "two")
    assert refused.body["message"].endswith('conflict with "one": .immutable')
