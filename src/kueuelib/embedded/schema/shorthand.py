"""A short way to write nodes by hand: only what merges in a special way needs a word."""

from __future__ import annotations

from typing import Final

from kueuelib.embedded.schema.node import ListType, PatchStrategy, SchemaNode


def struct(**fields: SchemaNode) -> SchemaNode:
    """An object with some known fields; others stay. A trailing `_` keeps Python's words free."""
    return SchemaNode(
        type="object",
        properties={name.removesuffix("_"): node for name, node in fields.items()},
        preserve_unknown=True,
    )


def entries(value: SchemaNode) -> SchemaNode:
    """A map from any key to values of one shape."""
    return SchemaNode(type="object", additional=value)


def listed(
    item: SchemaNode, *keys: str, merge_key: str | None = None, replaced: bool = False
) -> SchemaNode:
    """A list whose items are identified by fields.

    Args:
        item: the shape of an item.
        keys: the identifying fields for server-side apply.
        merge_key: the identifying field for strategic merge; None: the first of `keys`.
        replaced: whether a strategic merge patch replaces the list.
    """
    return SchemaNode(
        type="array",
        items=item,
        list_type=ListType.MAP,
        list_map_keys=keys,
        patch_strategy=PatchStrategy.REPLACE if replaced else PatchStrategy.MERGE,
        patch_merge_key="" if replaced else merge_key or keys[0],
    )


def merged_by(item: SchemaNode, merge_key: str) -> SchemaNode:
    """A list that is atomic for server-side apply and merged by a strategic merge patch."""
    return SchemaNode(
        type="array",
        items=item,
        patch_strategy=PatchStrategy.MERGE,
        patch_merge_key=merge_key,
    )


def default(value: str) -> SchemaNode:
    """A text with a default, for keys that clients may leave out."""
    return SchemaNode(type="string", default=value)


TEXT: Final = SchemaNode(type="string")
INTEGER: Final = SchemaNode(type="integer")
BOOLEAN: Final = SchemaNode(type="boolean")
OPEN: Final = struct()
"""An object of which nothing special is known; it merges field by field."""
TEXTS: Final = entries(TEXT)
ATOMIC: Final = SchemaNode(type="object", atomic_map=True, preserve_unknown=True)
"""An object that is replaced as a whole by server-side apply."""
UNIQUE: Final = SchemaNode(
    type="array", items=TEXT, list_type=ListType.SET, patch_strategy=PatchStrategy.MERGE
)
"""A set of texts, in both ways of patching."""
UNIQUE_REPLACED: Final = SchemaNode(type="array", items=TEXT, list_type=ListType.SET)
"""A set of texts that a strategic merge patch replaces."""
