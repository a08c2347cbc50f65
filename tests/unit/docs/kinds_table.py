"""The page of built-in kinds: `python tests/unit/docs/kinds_table.py > docs/reference/kinds.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from kueuelib.api.kinds import KUEUE
from kueuelib.embedded.registry.builtin_kinds import builtin_kinds
from kueuelib.runtime import Resource, kinds

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kinds.md"
BROUGHT = {KUEUE: "`kueuelib install`", "leaderworkerset.x-k8s.io": "its CRD"}
HEAD = """# kueuelib.runtime.kinds

Kinds as constants, for `owns=`, `writes=`, `watches=` and every call of a client:

```python
from kueuelib.runtime import Client, ObjectKey, kinds

claim = kinds.PERSISTENT_VOLUME_CLAIMS.new("data", spec={"accessModes": ["ReadWriteOnce"]})


async def size_of(client: Client) -> str:
    found = await client.get(kinds.PERSISTENT_VOLUME_CLAIMS, ObjectKey("default", "data"))
    return str(found["status"]["capacity"]["storage"])
```

For other kinds, make a `Resource`, for example
`Resource("cert-manager.io", "v1", "certificates", "Certificate", namespaced=True)`. The last column
says whether the [embedded server](../embedded.md) has the kind, and what brings it otherwise. This
page is generated.

| Constant | API version | Kind | Namespaced | Embedded server |
| --- | --- | --- | --- | --- |
"""


def constants() -> dict[str, Resource]:
    """The kinds by the names of their constants."""
    return {name: value for name, value in vars(kinds).items() if isinstance(value, Resource)}


def page() -> str:
    """The whole page."""
    served = {(kind.group, kind.kind) for kind in builtin_kinds({})}
    rows = []
    for name, kind in sorted(constants().items()):
        scope = "yes" if kind.namespaced else "no"
        here = "yes" if kind.group_kind in served else BROUGHT.get(kind.group, "no")
        rows.append(f"| `{name}` | `{kind.api_version}` | {kind.kind} | {scope} | {here} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
