"""The manifests of an operator name only what it uses."""

from __future__ import annotations

import pytest

from kueuelib.api.yaml_text import to_yaml
from kueuelib.app.program_manifests import operator_manifests
from kueuelib.runtime import Context, KubeObject, Obj, Operator, crd, frozen, kinds


@crd("example.com", "v1", plural="hats")
@frozen
class Hat(KubeObject):
    """Something to wear."""


async def reconcile(hat: Hat, context: Context) -> None:
    """Nothing to do."""


def fits(hat: Hat) -> list[Obj]:
    return []


@pytest.mark.parametrize("hooks", [False, True])
def test_without_a_webhook_there_is_neither_its_port_nor_its_secret(hooks: bool) -> None:
    app = Operator("hats")
    app.reconciles(Hat, owns=[kinds.CONFIG_MAPS])(reconcile)
    if hooks:
        app.validates(Hat)(fits)  # type: ignore[arg-type]
    printed = "".join(to_yaml(obj) for obj in operator_manifests(app, "hats.py", "", image="h:1"))
    assert ("9443" in printed) is hooks
    assert ("secrets" in printed) is hooks
    assert ("kind: Service\n" in printed) is hooks
    assert "containerPort: 8080" in printed
    assert "path: /readyz" in printed
    assert "seccompProfile:" in printed
