"""A server refuses exactly those queueing objects that the rules of the CRDs refuse here.

`CRD_MUTANTS=10000 pytest tests/conformance/test_queueing_mutants.py` is the long form.
"""

from __future__ import annotations

import asyncio
import copy
import os
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kueuelib.api.conversion import convert
from kueuelib.api.crd import crd
from kueuelib.embedded.schema.structural import StructuralSchema

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "api"))

from queue_mutants import mutant
from queue_objects import KINDS, queue_object

COUNT = int(os.environ.get("CRD_MUTANTS", "300"))
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERSIONS = ("v1beta1", "v1beta2")
AT_ONCE = 16


def drawn(seed: int) -> tuple[dict[str, Any], str]:
    """A mutant of one version, and the version; a creation ignores the status."""
    chance = Random(seed)
    obj, version = queue_object(chance.choice(KINDS)), chance.choice(VERSIONS)
    base = obj if obj["apiVersion"].endswith(version) else convert(obj, version)
    found = mutant(chance, base)
    found.pop("status", None)
    return found, version


@pytest.mark.timeout(900)
async def test_both_answers_are_the_same(api):
    definitions = {kind: crd(kind) for kind in KINDS}
    for definition in definitions.values():
        definition["spec"]["conversion"] = {"strategy": "None"}
        assert (await api.post(CRDS, definition)).status == 201
    schemas = {
        (kind, one["name"]): StructuralSchema.of(one["schema"]["openAPIV3Schema"])
        for kind, definition in definitions.items()
        for one in definition["spec"]["versions"]
    }
    for kind, version in schemas:
        assert await api.becomes(200, _path(definitions[kind], version))
    answers: Counter[int] = Counter()

    async def asks(seed: int) -> None:
        obj, version = drawn(seed)
        schema, here = schemas[obj["kind"], version], copy.deepcopy(obj)
        schema.prune(here)
        schema.default(here)
        errors = schema.validate(here, None)
        path = _path(definitions[obj["kind"]], version)
        answer = await api.post(path, obj, params={"dryRun": "All"})
        answers[answer.status] += 1
        assert (answer.status == 201) is not bool(errors), (seed, obj, errors, answer)

    for first in range(0, COUNT, AT_ONCE):
        await asyncio.gather(*map(asks, range(first, min(first + AT_ONCE, COUNT))))
    assert answers[201] > COUNT / 5
    assert answers[422] > COUNT / 5
    assert answers.keys() <= {201, 400, 422}


def _path(definition: dict[str, Any], version: str) -> str:
    spec = definition["spec"]
    where = "/namespaces/default" if spec["scope"] == "Namespaced" else ""
    return f"/apis/{spec['group']}/{version}{where}/{spec['names']['plural']}"
