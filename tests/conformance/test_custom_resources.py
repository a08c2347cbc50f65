"""Kinds that are defined at run time."""

from __future__ import annotations

import asyncio

import pytest

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def version(name="v1", storage=True, **fields):
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
            "parts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        },
    }
    status = {"type": "object", "properties": {"ready": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        **fields,
    }


def crd(*versions, **spec):
    names = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": list(versions) or [version()],
            **spec,
        },
    }


def widget(name="w", **spec):
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": 1, **spec},
    }


@pytest.fixture
async def defined(api):
    made = await api.post(CRDS, crd())
    assert made.status == 201
    return (await api.get(f"{CRDS}/widgets.example.com")).body


async def test_a_definition_is_served_at_once(api, defined):
    conditions = {each["type"]: each["status"] for each in defined["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert defined["status"]["storedVersions"] == ["v1"]
    assert defined["status"]["acceptedNames"]["listKind"] == "WidgetList"
    found = (await api.get("/apis/example.com/v1")).body["resources"]
    assert [each["name"] for each in found] == ["widgets", "widgets/status"]
    assert found[0]["shortNames"] == ["wd"]
    empty = (await api.get(WIDGETS)).body
    assert (empty["kind"], empty["items"]) == ("WidgetList", [])


async def test_the_schema_defaults_prunes_and_refuses(api, defined):
    made = await api.post(WIDGETS, widget(odd=1))
    assert made.status == 201
    assert made.body["spec"] == {"size": 1, "color": "red"}
    assert made.headers["warning"] == '299 - "unknown field \\"spec.odd\\""'
    assert made.body["metadata"]["generation"] == 1
    strict = await api.post(WIDGETS, widget("x", odd=1), params={"fieldValidation": "Strict"})
    assert 'unknown field "spec.odd"' in strict.body["message"]
    wrong = await api.post(WIDGETS, widget("x", size=0, color="green"))
    assert (wrong.status, wrong.body["reason"]) == (422, "Invalid")
    assert wrong.body["message"].startswith('Widget.example.com "x" is invalid: [')
    fields = {each["field"] for each in wrong.body["details"]["causes"]}
    assert fields == {"spec.size", "spec.color"}
    typed = await api.post(WIDGETS, widget("x", size="big"))
    assert typed.status == 422


async def test_generation_counts_wishes_and_status_is_apart(api, defined):
    await api.post(WIDGETS, {**widget(), "status": {"ready": 5}})
    first = (await api.get(f"{WIDGETS}/w")).body
    assert "status" not in first
    reported = await api.patch(f"{WIDGETS}/w/status", {"status": {"ready": 1}, "spec": {"size": 9}})
    assert reported.body["status"] == {"ready": 1}
    assert reported.body["spec"]["size"] == 1
    assert reported.body["metadata"]["generation"] == 1
    labelled = await api.patch(f"{WIDGETS}/w", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 1
    wished = await api.patch(f"{WIDGETS}/w", {"spec": {"size": 2}, "status": {"ready": 9}})
    assert wished.body["metadata"]["generation"] == 2
    assert wished.body["status"] == {"ready": 1}


async def test_a_replacement_needs_a_version(api, defined):
    await api.post(WIDGETS, widget())
    found = await api.put(f"{WIDGETS}/w", widget())
    assert found.status == 422
    assert found.body["message"] == (
        'widgets.example.com "w" is invalid: metadata.resourceVersion: Invalid value: 0: '
        "must be specified for an update"
    )


async def test_a_strategic_patch_is_not_for_custom_resources(api, defined):
    await api.post(WIDGETS, widget())
    assert (await api.patch(f"{WIDGETS}/w", {}, STRATEGIC)).status == 415


async def test_a_custom_object_says_what_it_is(api, defined):
    bare = widget()
    del bare["kind"]
    found = await api.post(WIDGETS, bare)
    assert found.status == 400
    assert "(must be of type Widget): Object 'Kind' is missing in" in found.body["message"]
    found = await api.post(WIDGETS, {**widget(), "apiVersion": ""})
    assert (found.status, found.body["message"]) == (
        400,
        "the API version in the data () does not match the expected API version (example.com/v1)",
    )
    found = await api.post(WIDGETS, {**widget(), "kind": "Odd"})
    assert found.status == 422
    assert found.body["message"] == (
        'Odd.example.com "w" is invalid: kind: Invalid value: "Odd": must be Widget'
    )


async def test_items_keep_their_kind_in_lists(api, defined):
    await api.post(WIDGETS, widget())
    (item,) = (await api.get(WIDGETS)).body["items"]
    assert (item["kind"], item["apiVersion"]) == ("Widget", "example.com/v1")


async def test_printer_columns_follow_the_definition(api):
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "First", "type": "string", "jsonPath": ".spec.parts[0].name"},
        {"name": "Hub", "type": "integer", "jsonPath": ".spec.parts[?(@.name=='hub')].count"},
        {"name": "None", "type": "string", "jsonPath": ".spec.none", "priority": 1},
    ]
    await api.post(CRDS, crd(version(additionalPrinterColumns=columns)))
    parts = [{"name": "rim"}, {"name": "hub", "count": 3}]
    await api.post(WIDGETS, widget(parts=parts))
    found = (await api.get(WIDGETS, headers={"Accept": TABLE})).body
    assert [each["name"] for each in found["columnDefinitions"]] == [
        "Name",
        "Size",
        "First",
        "Hub",
        "None",
    ]
    assert found["rows"][0]["cells"] == ["w", 1, "rim", 3, None]


async def test_selectable_fields_select(api):
    fields = [{"jsonPath": ".spec.color"}]
    await api.post(CRDS, crd(version(selectableFields=fields)))
    await api.post(WIDGETS, widget("a", color="blue"))
    await api.post(WIDGETS, widget("b"))
    found = await api.get(WIDGETS, params={"fieldSelector": "spec.color=blue"})
    assert [each["metadata"]["name"] for each in found.body["items"]] == ["a"]
    assert (await api.get(WIDGETS, params={"fieldSelector": "spec.size=1"})).status == 400


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scope": "Nowhere"}, "spec.scope"),
        ({"group": "other.com"}, "metadata.name"),
        ({"versions": []}, "spec.versions"),
        ({"versions": [version(storage=False)]}, "spec.versions"),
        ({"versions": [version(schema={})]}, "spec.versions[0].schema.openAPIV3Schema"),
        (
            {"versions": [version(additionalPrinterColumns=[{"name": "a", "type": "string"}])]},
            "spec.additionalPrinterColumns[0].JSONPath",
        ),
        ({"conversion": {"strategy": "Odd"}}, "spec.conversion.strategy"),
        ({"conversion": {"strategy": "Webhook"}}, "spec.conversion.webhookClientConfig"),
    ],
)
async def test_a_broken_definition_is_invalid(api, change, field):
    body = crd()
    body["spec"].update(change)
    made = await api.post(CRDS, body)
    assert (made.status, made.body["reason"]) == (422, "Invalid")
    assert field in {each["field"] for each in made.body["details"]["causes"]}


async def settled(api, name):
    """The definition, once it is served."""
    for _ in range(100):
        found = (await api.get(f"{CRDS}/{name}")).body
        states = {each["type"]: each["status"] for each in found["status"]["conditions"]}
        if states.get("Established") == "True":
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"not served: {found['status']}")


async def test_names_that_become_free_are_given_to_who_waits(api, defined):
    names = {"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]}
    body = crd(names=names)
    body["metadata"]["name"] = "gadgets.example.com"
    await api.post(CRDS, body)
    waiting = (await api.get(f"{CRDS}/gadgets.example.com")).body
    conditions = {each["type"]: each for each in waiting["status"].get("conditions", ())}
    assert conditions.get("Established", {}).get("status", "False") == "False"
    await api.delete(f"{CRDS}/widgets.example.com")
    served = await settled(api, "gadgets.example.com")
    assert served["status"]["acceptedNames"]["shortNames"] == ["wd"]
    for _ in range(100):
        found = await api.get("/apis/example.com/v1/namespaces/default/gadgets")
        if found.status == 200:
            break
        await asyncio.sleep(0.05)
    assert found.status == 200


async def test_a_name_that_is_given_up_is_free(api, defined):
    names = {"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]}
    body = crd(names=names)
    body["metadata"]["name"] = "gadgets.example.com"
    await api.post(CRDS, body)
    changed = {"spec": {"names": {"shortNames": ["wgt"]}}}
    assert (await api.patch(f"{CRDS}/widgets.example.com", changed)).status == 200
    await settled(api, "gadgets.example.com")


async def test_a_definition_that_was_never_served_can_be_deleted(api, defined):
    body = crd(names={"plural": "gadgets", "kind": "Widget"})
    body["metadata"]["name"] = "gadgets.example.com"
    await api.post(CRDS, body)
    await api.delete(f"{CRDS}/gadgets.example.com")
    for _ in range(100):
        if (await api.get(f"{CRDS}/gadgets.example.com")).status == 404:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it does not go")


async def test_names_of_others_are_not_accepted(api, defined):
    body = crd(names={"plural": "gadgets", "kind": "Widget"})
    body["metadata"]["name"] = "gadgets.example.com"
    await api.post(CRDS, body)
    made = (await api.get(f"{CRDS}/gadgets.example.com")).body
    conditions = {each["type"]: each for each in made["status"]["conditions"]}
    assert conditions["NamesAccepted"]["status"] == "False"
    assert conditions["Established"]["status"] == "False"
    assert (await api.get("/apis/example.com/v1/namespaces/default/gadgets")).status == 404


async def test_a_default_that_comes_later_is_no_wish(api):
    await api.post(CRDS, crd())
    await api.post(WIDGETS, widget())
    place = "spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/later"
    late = [{"op": "add", "path": f"/{place}", "value": {"type": "integer", "default": 7}}]
    path = f"{CRDS}/widgets.example.com"
    assert (await api.patch(path, late, "application/json-patch+json")).status == 200
    one = f"{WIDGETS}/{widget()['metadata']['name']}"
    async with asyncio.timeout(20):
        while (await api.get(one)).body["spec"].get("later") != 7:
            await asyncio.sleep(0.05)
    found = await api.patch(one, {"metadata": {"labels": {"a": "b"}}})
    assert (found.body["metadata"]["generation"], found.body["spec"]["later"]) == (1, 7)


async def test_versions_without_conversion_differ_by_name_only(api):
    await api.post(CRDS, crd(version("v1beta1", storage=False), version("v1")))
    await api.post(WIDGETS, widget())
    beta = WIDGETS.replace("/v1/", "/v1beta1/")
    old = (await api.get(f"{beta}/w")).body
    assert old["apiVersion"] == "example.com/v1beta1"
    changed = await api.patch(f"{beta}/w", {"spec": {"size": 3}})
    assert changed.body["apiVersion"] == "example.com/v1beta1"
    new = (await api.get(f"{WIDGETS}/w")).body
    assert (new["apiVersion"], new["spec"]["size"]) == ("example.com/v1", 3)
    (event,) = await api.watch(beta, 1)
    assert event["object"]["apiVersion"] == "example.com/v1beta1"
    group = (await api.get("/apis/example.com")).body
    assert [each["version"] for each in group["versions"]] == ["v1", "v1beta1"]


async def test_a_changed_schema_shows_in_old_objects(api, defined):
    await api.post(WIDGETS, widget())
    changed = version()
    properties = changed["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["weight"] = {"type": "integer", "default": 7}
    body = {**defined, "spec": {**defined["spec"], "versions": [changed]}}
    assert (await api.put(f"{CRDS}/widgets.example.com", body)).status == 200
    assert (await api.get(f"{WIDGETS}/w")).body["spec"]["weight"] == 7
    assert (await api.get(WIDGETS)).body["items"][0]["spec"]["weight"] == 7


async def test_a_version_that_is_stored_cannot_go(api, defined):
    body = {**defined, "spec": {**defined["spec"], "versions": [version("v2")]}}
    found = await api.put(f"{CRDS}/widgets.example.com", body)
    assert found.status == 422
    assert found.body["details"]["causes"][0]["field"] == "status.storedVersions[0]"


async def test_a_version_can_be_withdrawn(api, defined):
    body = {**defined, "spec": {**defined["spec"], "versions": [version(served=False)]}}
    assert (await api.put(f"{CRDS}/widgets.example.com", body)).status == 200
    assert (await api.get(WIDGETS)).status == 404


async def test_objects_go_with_their_definition(api, defined):
    await api.post(WIDGETS, widget("a"))
    held = widget("b")
    held["metadata"]["finalizers"] = ["example.com/keep"]
    await api.post(WIDGETS, held)
    watching = asyncio.create_task(api.watch(WIDGETS, 10))
    await asyncio.sleep(0.05)
    going = await api.delete(f"{CRDS}/widgets.example.com")
    assert going.body["metadata"]["deletionTimestamp"]
    await asyncio.sleep(0.05)
    left = (await api.get(WIDGETS)).body["items"]
    assert [each["metadata"]["name"] for each in left] == ["b"]
    refused = await api.post(WIDGETS, widget("c"))
    assert refused.status == 403
    assert refused.body["message"] == (
        'widgets.example.com "c" is forbidden: create not allowed while custom resource '
        "definition is terminating"
    )
    kinds = (await api.get("/apis/example.com/v1")).body["resources"]
    (verbs,) = (set(each["verbs"]) for each in kinds if each["name"] == "widgets")
    assert verbs == {"delete", "deletecollection", "get", "list", "watch"}
    await api.patch(f"{WIDGETS}/b", {"metadata": {"finalizers": None}})
    for _ in range(100):
        if (await api.get(f"{CRDS}/widgets.example.com")).status == 404:
            break
        await asyncio.sleep(0.01)
    assert await api.becomes(404, WIDGETS)
    types = [each["type"] for each in await watching]
    assert types == ["ADDED", "ADDED", "DELETED", "MODIFIED", "DELETED"]


async def test_a_definition_can_come_back(api, defined):
    await api.post(WIDGETS, widget())
    await api.delete(f"{CRDS}/widgets.example.com")
    for _ in range(100):
        if (await api.post(CRDS, crd())).status == 201:
            break
        await asyncio.sleep(0.01)
    assert await api.becomes(200, WIDGETS)
    assert (await api.get(WIDGETS)).body["items"] == []


async def test_what_the_definition_does_not_know_any_more_goes_at_the_next_write(api, defined):
    await api.post(WIDGETS, widget(parts=[{"name": "a", "count": 1}]))
    new = version()
    fields = new["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del fields["parts"]
    fields["shape"] = {"type": "string", "default": "round"}
    changed = await api.patch(f"{CRDS}/widgets.example.com", {"spec": {"versions": [new]}})
    assert changed.status == 200
    labelled = await api.patch(f"{WIDGETS}/w", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.status == 200
    assert labelled.body["spec"] == {"size": 1, "color": "red", "shape": "round"}
    again = await api.patch(f"{WIDGETS}/w", {"metadata": {"labels": {"a": "c"}}})
    assert again.body["spec"] == labelled.body["spec"]
    assert (await api.get(f"{WIDGETS}/w")).body["spec"] == labelled.body["spec"]


async def test_a_whole_number_is_written_without_its_fraction(api):
    defined = version()
    spec = defined["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-preserve-unknown-fields"] = True
    assert (await api.post(CRDS, crd(defined))).status == 201
    given = widget("a", size=1.0, other=[2.0, 0.5, {"deep": -3.0, "text": "1.0"}])
    assert (await api.post(WIDGETS, given)).status == 201
    body = (await api.get(f"{WIDGETS}/a")).body["spec"]
    size, (two, half, inner) = body["size"], body["other"]
    found = (size, two, half, inner["deep"], inner["text"])
    assert found == (1, 2, 0.5, -3, "1.0")
    assert [type(each) for each in found] == [int, int, float, int, str]


async def test_a_broken_rule_shows_a_value_that_is_short(api):
    """Of objects and lists nothing; the type where a rule could not be evaluated."""

    def ruled(type_, rule, **fields):
        return {"type": type_, "x-kubernetes-validations": [{"rule": rule, **fields}]}

    a = {"properties": {"a": {"type": "integer"}}}
    properties = {
        "text": {**ruled("string", "self != 'x'", message="m"), "maxLength": 9},
        "number": ruled("integer", "self > 0"),
        "flag": ruled("boolean", "!self", message="m"),
        "inner": {**ruled("object", "self.a > 0", message="m"), **a},
        "twice": {**ruled("object", "self.a > 0", reason="FieldValueDuplicate"), **a},
        "lost": {**ruled("object", "self.a > 0"), **a},
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    schema["properties"]["spec"]["properties"] = properties
    assert (await api.post(CRDS, crd(version(schema={"openAPIV3Schema": schema})))).status == 201
    await api.becomes(200, WIDGETS)
    inner = {"inner": {"a": 0}, "twice": {"a": 0}, "lost": {}}
    found = await api.post(WIDGETS, widget(text="x", number=0, flag=True, **inner))
    told = {each["field"]: each["message"] for each in found.body["details"]["causes"]}
    assert told == {
        "spec.text": 'Invalid value: "x": m',
        "spec.number": "Invalid value: 0: failed rule: self > 0",
        "spec.flag": "Invalid value: true: m",
        "spec.inner": "Invalid value: m",
        "spec.twice": "Duplicate value",
        "spec.lost": 'Invalid value: "object": no such key: a evaluating rule: self.a > 0',
    }


async def test_a_negative_scale_is_told_of_the_kind(api):
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    size = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": size, "status": size}}
    served = version(schema={"openAPIV3Schema": schema}, subresources={"scale": scale})
    assert (await api.post(CRDS, crd(served))).status == 201
    await api.becomes(200, WIDGETS)
    assert (await api.post(WIDGETS, widget())).status == 201
    found = await api.patch(f"{WIDGETS}/w/scale", {"spec": {"replicas": -4}})
    why = ".spec.size: Invalid value: -4: should be a non-negative integer"
    assert found.status == 422
    assert found.body["message"] == f'Widget.example.com "w" is invalid: {why}'


async def test_a_list_that_is_replaced_disowns_the_fields_that_it_lacks(api, defined):
    """As when answers of a check are taken back that its controller has applied."""
    apply = "application/apply-patch+yaml"
    path, key = f"{WIDGETS}/w", 'k:{"name":"a"}'
    applied = await api.patch(
        path,
        widget(parts=[{"name": "a", "count": 2}, {"name": "b", "count": 3}]),
        apply,
        params={"fieldManager": "check", "force": "true"},
    )
    assert applied.status == 201, applied

    def owned(answer):
        for entry in answer.body["metadata"]["managedFields"]:
            if entry["manager"] == "check":
                return {*entry["fieldsV1"]["f:spec"]["f:parts"].get(key, {})} - {"."}
        return None

    assert owned(applied) == {"f:name", "f:count"}
    version = applied.body["metadata"]["resourceVersion"]
    body = {
        "metadata": {"resourceVersion": version},
        "spec": {"parts": [{"name": "a"}, {"name": "b", "count": 3}]},
    }
    replaced = await api.patch(path, body, params={"fieldManager": "queue"})
    assert replaced.body["spec"]["parts"] == [{"name": "a"}, {"name": "b", "count": 3}]
    assert owned(replaced) == {"f:name"}
    assert (await api.patch(path, body, params={"fieldManager": "queue"})).status == 409
