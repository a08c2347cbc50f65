"""Objects as YAML that every reader understands in the same way.

PyYAML knows other plain texts that are not texts than Go does, and YAML 1.2 knows others again: `y`
is true, `1e3` and `0o17` are numbers somewhere. What any of them could take for another value is
quoted.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

_DOUBTFUL: Final = re.compile(
    r"y|n|yes|no|on|off|true|false|null|nan|[-+]?\.?inf|\.nan"
    r"|[-+._]*[0-9][-+.:,_0-9a-fopx]*"  # numbers in any base, with underscores, of base 60, dates
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}[t\s].*",
    re.IGNORECASE,
)
_UNPRINTED: Final = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
_TEXT: Final = "tag:yaml.org,2002:str"


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes parts that occur twice twice, without anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - whatever it is
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        style = '"' if _UNPRINTED.search(data) else "'" if _DOUBTFUL.fullmatch(data) else None
        return yaml.ScalarNode(_TEXT, data, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def to_yaml(obj: Any) -> str:
    """One object as a YAML document, in the order of its fields."""
    text = yaml.dump(obj, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
    return str(text)
