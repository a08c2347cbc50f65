"""The documentation site; `nox -s docs` builds it."""

from __future__ import annotations

import builtins
import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

import kueuelib

EXAMPLES = Path(__file__).parents[1] / "examples"
REPOSITORY = os.environ.get("REPOSITORY", "REPOSITORY")
"""The address to clone the project from."""

project = "kueuelib"
copyright = "the kueuelib authors"  # noqa: A001 - Sphinx names it
version = release = kueuelib.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
python_maximum_signature_line_length = 88
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"kueuelib {version}"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^- \[.+?\]\(([^)#]+)\.md\)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_EXAMPLE = re.compile(r"\(\.\./examples/(.+?)\)")
_GOOGLE = Config(napoleon_use_rtype=False, napoleon_use_ivar=True)


def _navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Make the sidebar from the lists of all pages, and name the repository."""
    source[0] = source[0].replace("REPOSITORY", REPOSITORY)
    if page != "index":
        return
    source[0] += "\n```{toctree}\n:hidden:\n\npages\n```\n"
    parts = _SECTION.split((Path(__file__).parent / "pages.md").read_text())
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        pages = "\n".join(_ENTRY.findall(text))
        if pages:
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"


def _examples(_app: Sphinx, page: str, source: list[str]) -> None:
    """Show each program below the index."""
    if page == "examples":
        for name in _EXAMPLE.findall(source[0]):
            source[0] += f"\n## {name}\n\n```python\n{(EXAMPLES / name).read_text()}```\n"


def _to_rst(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn a docstring from Markdown with sections in Google's style into reStructuredText."""
    rst: list[str] = []
    fenced = False
    for line in lines:
        if line.startswith("```"):
            fenced = not fenced
            rst += ["", f".. code-block:: {line[3:] or 'text'}" if fenced else "", ""]
        elif fenced:
            rst.append(f"    {line}")
        elif line.startswith("    ") and rst and not rst[-1]:
            # An indented example follows an empty line; what a section says does not.
            rst += [".. code-block:: python", "", line]
        else:
            rst.append(_CODE.sub(r"``\1``", line))
    # As a "method", so that a colon in the first line does not end the type of an attribute.
    kind = "method" if what in ("attribute", "property") else what
    lines[:] = GoogleDocstring(rst, _GOOGLE, app, kind, name, obj, options).lines()


def _defaults(
    _app: Sphinx,
    _what: str,
    _name: str,
    _obj: Any,
    _options: Any,
    signature: str | None,
    result: str,
) -> tuple[str | None, str]:
    """Show `...` where attrs makes a default with a function."""
    return signature and signature.replace("= NOTHING", "= ..."), result


def _no_links_to_builtins(_app: Sphinx, tree: nodes.document) -> None:
    """Keep `type` and `object` in signatures from pointing to fields with these names."""
    for link in list(tree.findall(pending_xref)):
        if link.get("refdomain") == "py" and hasattr(builtins, link["reftarget"]):
            link.replace_self(link.children)


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.connect("source-read", _navigation)
    app.connect("source-read", _examples)
    app.connect("autodoc-process-docstring", _to_rst)
    app.connect("autodoc-process-signature", _defaults)
    app.connect("doctree-read", _no_links_to_builtins)
