"""Which schemas a CustomResourceDefinition may have, and which values fit their formats."""

from __future__ import annotations

import pytest

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GADGETS = "/apis/schemas.example.com/v1/namespaces/default/gadgets"
ROOT = "spec.validation.openAPIV3Schema"
X = f"{ROOT}.properties[spec].properties[x]"
TEXT = {"type": "string"}


def struct(**fields):
    return {"type": "object", "properties": fields}


def listed(kind, *keys, items=None, **more):
    found = {"type": "array", "items": items or struct(a=TEXT), "x-kubernetes-list-type": kind}
    return {**found, "x-kubernetes-list-map-keys": list(keys), **more}


def crd(schema, group="schemas.example.com", annotations=None, **version):
    given = {"name": "v1", "served": True, "storage": True, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}", "annotations": annotations or {}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{**given, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def spec(x):
    return struct(spec=struct(x=x))


async def refusals(api, body):
    """Field and message of each cause."""
    found = await api.post(CRDS, body, params={"dryRun": "All"})
    assert found.status == 422, found
    return [(each["field"], each["message"]) for each in found.body["details"]["causes"]]


FIELD_TYPE = "Required value: must not be empty for specified object fields"
ANY_OF = [{"type": "integer"}, {"type": "string"}]


@pytest.mark.parametrize(
    ("x", "where", "text"),
    [
        ({}, ".type", FIELD_TYPE),
        ({"description": "d"}, ".type", FIELD_TYPE),
        (
            {"type": "foo"},
            ".type",
            (
                'Unsupported value: "foo": supported values: "array", "boolean", "integer", '
                '"number", "object", "string"'
            ),
        ),
        ({"type": "array"}, ".items", "Required value: must be specified"),
        (
            {"type": "array", "items": {}},
            ".items.type",
            "Required value: must not be empty for specified array items",
        ),
        (
            {"type": "array", "items": [TEXT]},
            ".items",
            "Forbidden: items must be a schema object and not an array",
        ),
        (
            {**struct(a=TEXT), "additionalProperties": TEXT},
            ".additionalProperties",
            "Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            {"type": "array", "items": TEXT, "uniqueItems": True},
            ".uniqueItems",
            (
                "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes "
                "quadratic"
            ),
        ),
        ({**TEXT, "$ref": "#/x"}, ".$ref", "Forbidden: $ref is not supported"),
        ({**TEXT, "id": "x"}, ".id", "Forbidden: id is not supported"),
        (
            {"anyOf": ANY_OF[:1], "type": "string"},
            ".anyOf[0].type",
            None,
        ),
        (
            {**TEXT, "allOf": [{"description": "d"}]},
            ".allOf[0].description",
            "Forbidden: must be empty to be structural",
        ),
        (
            {**TEXT, "not": {"nullable": True}},
            ".not.nullable",
            "Forbidden: must be false to be structural",
        ),
        (
            {**TEXT, "oneOf": [{"default": "a"}]},
            ".oneOf[0].default",
            "Forbidden: must be undefined to be structural",
        ),
        (
            {**TEXT, "pattern": "("},
            ".pattern",
            (
                'Invalid value: "(": must be a valid regular expression, but isn\'t: error parsing '
                "regexp: missing closing ): `(`"
            ),
        ),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
            ".x-kubernetes-preserve-unknown-fields",
            "Invalid value: false: must be true or undefined",
        ),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True},
            ".properties",
            (
                "Required value: must not be empty if x-kubernetes-embedded-resource is true "
                "without x-kubernetes-preserve-unknown-fields"
            ),
        ),
        (
            {"type": "object", "x-kubernetes-map-type": "foo"},
            ".x-kubernetes-map-type",
            'Unsupported value: "foo": supported values: "atomic", "granular"',
        ),
        (
            {**TEXT, "x-kubernetes-map-type": "atomic"},
            ".type",
            'Invalid value: "string": must be object if x-kubernetes-map-type is specified',
        ),
        (
            listed("foo"),
            ".x-kubernetes-list-type",
            'Unsupported value: "foo": supported values: "atomic", "set", "map"',
        ),
        (
            {**TEXT, "x-kubernetes-list-type": "atomic"},
            ".type",
            'Invalid value: "string": must be array if x-kubernetes-list-type is specified',
        ),
        (
            listed("set"),
            ".items.x-kubernetes-map-type",
            "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            listed("set", items={**TEXT, "nullable": True}),
            ".items.nullable",
            "Forbidden: cannot be nullable when x-kubernetes-list-type is set",
        ),
        (
            listed("map"),
            ".x-kubernetes-list-map-keys",
            "Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            listed("map", "a"),
            ".items.properties[a].default",
            (
                "Required value: this property is in x-kubernetes-list-map-keys, so it must have a "
                "default or be a required property"
            ),
        ),
        (
            listed("map", "b"),
            ".x-kubernetes-list-map-keys",
            'Invalid value: ["b"]: entries must all be names of item properties',
        ),
        (
            listed("map", "a", items={**struct(a={"type": "object"}), "required": ["a"]}),
            ".items.properties[a].type",
            (
                'Invalid value: "object": must be a scalar type if parent array\'s '
                "x-kubernetes-list-type is map"
            ),
        ),
        (
            listed("map", "a", items=TEXT),
            ".items.type",
            (
                'Invalid value: "string": must be object if parent array\'s x-kubernetes-list-type '
                "is map"
            ),
        ),
        (
            {**TEXT, "default": 5},
            ".default",
            'Invalid value: "integer":  in body must be of type string: "integer"',
        ),
        (
            {**TEXT, "enum": ["b", "a"], "default": "c"},
            ".default",
            'Unsupported value: "c": supported values: "b", "a"',
        ),
        (
            {**struct(a=TEXT), "default": {"b": "x"}},
            ".default",
            'Invalid value: {"b":"x"}: must not have unknown fields',
        ),
        (
            {**struct(a={"type": "integer"}), "default": {"a": "x"}},
            ".default.a",
            'Invalid value: "string": a in body must be of type integer: "string"',
        ),
    ],
)
async def test_a_part_of_a_schema_that_no_cluster_takes_is_refused(api, x, where, text):
    found = await refusals(api, crd(spec(x)))
    fields = [field for field, _ in found]
    assert X + where in fields, found
    if text is not None:
        assert found == [(X + where, text)]


@pytest.mark.parametrize(
    ("schema", "where", "text"),
    [
        ({"properties": {}}, ".type", "Required value: must not be empty at the root"),
        (TEXT, ".type", 'Invalid value: "string": must be object at the root'),
        (
            {"type": "object", "additionalProperties": TEXT},
            ".additionalProperties",
            "Forbidden: must not be used at the root",
        ),
        (
            {"type": "object", "nullable": True},
            ".nullable",
            "Forbidden: nullable cannot be true at the root",
        ),
        (
            struct(metadata=struct(labels={"type": "object"})),
            ".properties[metadata]",
            (
                "Forbidden: must not specify anything other than name and generateName, but "
                "metadata is implicitly specified"
            ),
        ),
        (
            struct(metadata=struct(name={**TEXT, "default": "a"})),
            ".properties[metadata].properties[name].default",
            "Forbidden: must not be set in top-level metadata",
        ),
        (
            struct(kind={"type": "integer"}),
            ".properties[kind].type",
            'Invalid value: "integer": must be string',
        ),
        (
            {"type": "object", "anyOf": [{"properties": {"a": {"minLength": 1}}}]},
            ".properties[a]",
            f"Required value: because it is defined in {ROOT}.anyOf[0].properties[a]",
        ),
    ],
)
async def test_the_root_of_a_schema_has_rules_of_its_own(api, schema, where, text):
    assert await refusals(api, crd(schema)) == [(ROOT + where, text)]


@pytest.mark.parametrize(
    "schema",
    [
        spec({"x-kubernetes-int-or-string": True, "anyOf": ANY_OF}),
        spec({"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": ANY_OF}, {"pattern": "a"}]}),
        spec({"x-kubernetes-preserve-unknown-fields": True}),
        spec({"type": "object", "additionalProperties": True}),
        spec(listed("map", "a", items={**struct(a={**TEXT, "default": "x"})})),
        spec(listed("set", items={**struct(a=TEXT), "x-kubernetes-map-type": "atomic"})),
        spec({**struct(a=TEXT), "oneOf": [{"required": ["a"]}, {"maxProperties": 0}]}),
        struct(metadata=struct(name={**TEXT, "maxLength": 5})),
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    ],
)
async def test_what_is_structural_is_taken(api, schema):
    found = await api.post(CRDS, crd(schema), params={"dryRun": "All"})
    assert found.status == 201, found


async def test_rules_hold_for_defaults_as_they_are_written(api):
    """Nested defaults do not count; values of maps are spared; `oldSelf` is the default itself."""
    small = {"type": "integer", "default": 1}

    def ruled(default, rule="self.size <= 5"):
        rules = [{"rule": rule, "message": "m"}]
        return {**struct(size=small), "default": default, "x-kubernetes-validations": rules}

    no_key = 'Invalid value: "object": no such key: size evaluating rule: m'
    x = struct(
        a=ruled({}),
        b=ruled({"size": 6}),
        c={"type": "array", "maxItems": 9, "items": struct(in_=ruled({}))},
        d={"type": "object", "maxProperties": 9, "additionalProperties": struct(in_=ruled({}))},
        e={"type": "object", "default": {"in": {}}, "properties": {"in": ruled({"size": 1})}},
        f=ruled({"size": 1}, "self.size > oldSelf.size"),
    )
    assert set(await refusals(api, crd(spec(x)))) == {
        (f"{X}.properties[a].default", no_key),
        (f"{X}.properties[b].default", "Invalid value: m"),
        (f"{X}.properties[c].items.properties[in_].default", no_key),
        (f"{X}.properties[e].default.in", no_key),
        (f"{X}.properties[f].default", "Invalid value: m"),
    }
    good = ruled({"size": 5})
    found = await api.post(CRDS, crd(spec(good)), params={"dryRun": "All"})
    assert found.status == 201, found


async def test_all_problems_of_a_schema_are_told_together(api):
    parts = struct(b={}, a={}, c={"type": "array"})
    found = await refusals(api, crd(struct(spec=parts)))
    where = f"{ROOT}.properties[spec].properties"
    assert [field for field, _ in found] == [
        f"{where}[a].type",
        f"{where}[b].type",
        f"{where}[c].items",
    ]


async def test_versions_that_differ_are_told_apart(api):
    body = crd(spec({}))
    (first,) = body["spec"]["versions"]
    second = {**first, "name": "v2", "storage": False, "schema": {"openAPIV3Schema": struct()}}
    body["spec"]["versions"].append(second)
    ((field, _),) = await refusals(api, body)
    assert field == "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[x].type"


async def test_a_part_with_a_status_of_its_own_restricts_the_root_little(api):
    body = crd({**struct(spec=struct()), "maxProperties": 5}, subresources={"status": {}})
    ((field, message),) = await refusals(api, body)
    assert field == ROOT
    assert "fields are allowed at the root of the schema if the status subresource" in message


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("", "Required value: protected groups must have approval annotation"),
        ("foo", 'Invalid value: "foo": protected groups must have approval annotation'),
        ("unapproved, a test", ""),
        ("https://example.com/1", ""),
    ],
)
async def test_groups_of_kubernetes_need_its_approval(api, annotation, text):
    key = "api-approved.kubernetes.io"
    given = {key: annotation} if annotation else {}
    body = crd(spec(TEXT), group="things.k8s.io", annotations=given)
    if not text:
        assert (await api.post(CRDS, body, params={"dryRun": "All"})).status == 201
        return
    ((field, message),) = await refusals(api, body)
    assert field == f"metadata.annotations[{key}]"
    assert message.startswith(text)


async def test_unknown_fields_are_kept_by_the_schema_only(api):
    body = crd(spec(TEXT))
    body["spec"]["preserveUnknownFields"] = True
    ((field, message),) = await refusals(api, body)
    assert field == "spec.preserveUnknownFields"
    assert message.startswith("Invalid value: true: cannot set to true")


@pytest.mark.parametrize(
    ("scale", "problems"),
    [
        ({}, [("spec", "Required value"), ("status", "Required value")]),
        (
            {"specReplicasPath": ".foo", "statusReplicasPath": "status"},
            [
                ("spec", 'Invalid value: ".foo": should be a json path under .spec'),
                ("status", 'Invalid value: "status": must be a simple json path starting with .'),
            ],
        ),
    ],
)
async def test_the_paths_of_a_scale_are_checked(api, scale, problems):
    found = await refusals(api, crd(spec(TEXT), subresources={"scale": scale}))
    where = "spec.subresources.scale"
    assert found == [(f"{where}.{part}ReplicasPath", text) for part, text in problems]


async def test_selectable_fields_are_leaves_of_the_schema(api):
    paths = (".spec.zz", ".spec.o", ".spec.x", ".spec.x", "spec.x", "", ".spec.a[0]")
    schema = struct(spec=struct(x=TEXT, o={"type": "object"}, a={"type": "array", "items": TEXT}))
    fields = [{"jsonPath": path} for path in paths]
    found = await refusals(api, crd(schema, selectableFields=fields))
    leaf = (
        "must point to a field of type string, boolean or integer. Enum string fields and strings "
        "with formats are allowed."
    )
    assert found == [
        (f"spec.selectableFields[{i}].jsonPath", text)
        for i, text in (
            (0, 'Invalid value: ".spec.zz": is an invalid path: does not refer to a valid field'),
            (1, f'Invalid value: ".spec.o": {leaf}'),
            (3, 'Duplicate value: ".spec.x"'),
            (4, 'Invalid value: "spec.x": is an invalid path: expected [ or . but got: spec'),
            (5, "Required value"),
            (6, 'Invalid value: ".spec.a[0]": is an invalid path: array notation is not allowed'),
        )
    ]


async def test_columns_are_checked(api):
    column = {"name": "a", "type": "foo", "jsonPath": "spec", "format": "x"}
    found = await refusals(api, crd(spec(TEXT), additionalPrinterColumns=[column]))
    where = "spec.additionalPrinterColumns[0]"
    assert found == [
        (
            f"{where}.type",
            'Invalid value: "foo": must be one of boolean,date,integer,number,string',
        ),
        (
            f"{where}.format",
            (
                'Invalid value: "x": must be one of byte,date,date-time,double,float,int32,int64,'
                "password"
            ),
        ),
        (
            f"{where}.JSONPath",
            'Invalid value: "spec": must be a simple json path starting with .',
        ),
    ]


async def test_a_format_that_nobody_knows_is_warned_of(api):
    body = crd(spec({**TEXT, "format": "nonsense"}))
    found = await api.post(CRDS, body, params={"dryRun": "All"})
    assert found.status == 201
    assert found.headers["warning"] == '299 - "unrecognized format \\"nonsense\\""'


# ---- values --------------------------------------------------------------------------------------

FORMATS = {
    "email": (["a@b", "N <a@b.c>"], ["x", "a@", "@b", "a b@c"]),
    "duration": (["5s", "1h30m", "2 days", "0"], ["5x", "5", ""]),
    "uri": (["http://a", "/a", "mailto:a@b", "http://a/b c"], ["::", "a", "", "http://a b"]),
    "hostname": (["a", "a.b-c.de", "A.COM", "1a"], ["_a", "-a", "a..b", ""]),
    "ipv4": (["1.2.3.4", "01.2.3.4"], ["::1", "1.2.3"]),
    "ipv6": (["::1", "::ffff:1.2.3.4"], ["1.2.3.4", "g::1"]),
    "cidr": (["1.2.3.4/24", "::/0"], ["1.2.3.4", "1.2.3.4/33"]),
    "mac": (["00:00:5e:00:53:01", "0000.5e00.5301"], ["00:00", "zz:00:5e:00:53:01"]),
    "uuid": (["12345678-1234-1234-1234-12345678901A"], ["x"]),
    "uuid4": (
        ["12345678-1234-4234-8234-123456789012"],
        ["12345678-1234-1234-8234-123456789012"],
    ),
    "byte": (["YQ=="], ["", "YQ", "!!!!"]),
    "date": (["2020-01-01"], ["2020-02-30", "x"]),
    "date-time": (["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.1z"], ["2020-01-01", "x"]),
    "isbn": (["0321751043", "978-0321751041"], ["0321751044"]),
    "creditcard": (["4111 1111 1111 1111"], ["4111111111111112"]),
    "ssn": (["123-45-6789"], ["123456789"]),
    "hexcolor": (["#fff", "FFFFFF"], ["#ffff"]),
    "rgbcolor": (["rgb(255,0, 1)"], ["rgb(256,0,0)"]),
    "k8s-short-name": (["a"], ["A", "a.b"]),
    "nonsense": (["x"], []),
}


async def made(api, name, value):
    body = {"apiVersion": "schemas.example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}
    params = {"dryRun": "All"}
    return await api.post(GADGETS, {**body, "spec": {name: value}}, params=params)


async def test_texts_have_the_format_of_their_schema(api):
    names = {name: {**TEXT, "format": name} for name in FORMATS}
    assert (await api.post(CRDS, crd(struct(spec=struct(**names))))).status == 201
    for name, (good, bad) in FORMATS.items():
        for value in good:
            found = await made(api, name, value)
            assert found.status == 201, (name, value, found)
        for value in bad:
            found = await made(api, name, value)
            assert found.status == 422, (name, value)
            (cause,) = found.body["details"]["causes"]
            assert cause["field"] == f"spec.{name}"
            assert f"spec.{name} in body must be of type {name}" in cause["message"]


NUMBERS = {
    "small": {"type": "integer", "format": "int32"},
    "large": {"type": "integer", "format": "int64"},
    "plain": {"type": "integer"},
    "float": {"type": "number", "format": "float"},
    "double": {"type": "number", "format": "double"},
    "any": {"x-kubernetes-int-or-string": True},
}
RANGE = 'Invalid value: "": Checked value must be of type'


async def test_numbers_have_the_format_of_their_schema(api):
    assert (await api.post(CRDS, crd(struct(spec=struct(**NUMBERS))))).status == 201
    for name, value in (
        ("small", 2**31 - 1),
        ("small", -(2**31)),
        ("small", 1.0),
        ("large", 2**63 - 1),
        ("plain", -(2**63)),
        ("float", 1e38),
        ("double", 1e300),
        ("any", 2**63 - 1),
    ):
        found = await made(api, name, value)
        assert found.status == 201, (name, value, found)
    for name, value, texts in (
        ("small", 2**31, [f"{RANGE} integer with format int32 in spec.small"]),
        ("small", -(2**31) - 1, [f"{RANGE} integer with format int32 in spec.small"]),
        ("float", 1e39, [f"{RANGE} number with format float in spec.float"]),
        (
            "small",
            1.5,
            [
                'Invalid value: "float64": spec.small in body must be of type int32: "float64"',
                f"{RANGE} integer with format int32 in spec.small",
            ],
        ),
        (
            "plain",
            2**63,
            [
                'Invalid value: "number": spec.plain in body must be of type integer: "number"',
                f"{RANGE} integer (default format) in spec.plain",
            ],
        ),
        (
            "any",
            2**63,
            [
                (
                    'Invalid value: "number": spec.any in body must be of type integer,string: '
                    '"number"'
                ),
            ],
        ),
    ):
        found = await made(api, name, value)
        assert found.status == 422, (name, value)
        assert [each["message"] for each in found.body["details"]["causes"]] == texts


async def test_allowed_values_are_told_in_their_own_order(api):
    colors = {**TEXT, "enum": ["red", "blue"]}
    assert (await api.post(CRDS, crd(struct(spec=struct(color=colors))))).status == 201
    found = await made(api, "color", "green")
    (cause,) = found.body["details"]["causes"]
    assert cause["message"] == 'Unsupported value: "green": supported values: "red", "blue"'


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        (TEXT, False),
        ({**TEXT, "nullable": True}, True),
        ({"x-kubernetes-preserve-unknown-fields": True}, False),
        ({**struct(a=TEXT), "x-kubernetes-preserve-unknown-fields": True}, False),
        ({"x-kubernetes-preserve-unknown-fields": True, "nullable": True}, True),
    ],
)
async def test_null_where_it_is_not_a_value_counts_as_absent(api, schema, kept):
    assert (await api.post(CRDS, crd(struct(spec=struct(color=schema))))).status == 201
    found = await made(api, "color", None)
    assert found.status == 201, found
    assert ("color" in found.body["spec"]) is kept


# ---- embedded objects ----------------------------------------------------------------------------

EMBEDDED = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}
POD = {"apiVersion": "v1", "kind": "Pod"}


async def embed(api, value, validation="Strict"):
    assert (await api.post(CRDS, crd(struct(spec=struct(x=EMBEDDED))))).status == 201
    body = {"apiVersion": "schemas.example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}
    params = {"dryRun": "All", "fieldValidation": validation}
    return await api.post(GADGETS, {**body, "spec": {"x": value}}, params=params)


@pytest.mark.parametrize(
    ("value", "status", "text"),
    [
        ({**POD, "metadata": {"junk": 1}}, 400, 'unknown field "spec.x.metadata.junk"'),
        (
            {**POD, "metadata": {"ownerReferences": [{"foo": 1}]}},
            400,
            'unknown field "spec.x.metadata.ownerReferences[0].foo"',
        ),
        (
            {**POD, "metadata": {"labels": 5}},
            400,
            (
                'spec.x.metadata: Invalid value: {"labels":5}: json: cannot unmarshal number into '
                "Go struct field ObjectMeta.labels of type map[string]string"
            ),
        ),
        (
            {**POD, "metadata": 5},
            400,
            (
                "spec.x.metadata: Invalid value: 5: json: cannot unmarshal number into Go value of "
                "type v1.ObjectMeta"
            ),
        ),
        ({**POD, "apiVersion": 5}, 400, "spec.x.apiVersion: Invalid value: 5: must be a string"),
        ({}, 422, "[spec.x.apiVersion: Required value, spec.x.kind: Required value]"),
        (
            {**POD, "apiVersion": "a/b/c"},
            422,
            'spec.x.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
        ),
        ({**POD, "kind": "p o d"}, 422, 'spec.x.kind: Invalid value: "p o d": may have mixed case'),
        (
            {**POD, "metadata": {"labels": {"a b": "c"}}},
            422,
            'spec.x.metadata.labels: Invalid value: "a b": name part must consist of',
        ),
        (
            {**POD, "metadata": {"generation": -1}},
            422,
            "spec.x.metadata.generation: Invalid value: -1: must be greater than or equal to 0",
        ),
    ],
)
async def test_the_head_of_an_embedded_object_is_checked(api, value, status, text):
    found = await embed(api, value)
    assert found.status == status
    assert text in found.body["message"]


@pytest.mark.parametrize("validation", ["Warn", "Ignore"])
async def test_the_metadata_of_an_embedded_object_are_pruned(api, validation):
    meta = {"name": "A B", "junk": 1, "creationTimestamp": None, "labels": {"a": None}}
    found = await embed(api, {**POD, "metadata": meta, "other": {"junk": 1}}, validation)
    assert found.status == 201
    kept = {"name": "A B", "labels": {"a": ""}}
    assert found.body["spec"]["x"] == {**POD, "metadata": kept, "other": {"junk": 1}}
    warned = 'unknown field \\"spec.x.metadata.junk\\"' in found.headers.get("warning", "")
    assert warned is (validation == "Warn")
