"""Compiles the decision engine with mypyc when a wheel is built, if the builder asks for it.

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 pip wheel --no-deps .

The sources stay as they are: a copy is rewritten and compiled in a temporary folder, and its shared
objects go into the wheel, beside the modules that they replace. The rewriting turns every attrs
class into the plain class that it stands for, because mypyc makes only plain classes native. Line
numbers don't change, so tracebacks show the lines of the modules.
"""

import ast
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = "src/kueuelib"

COMPILED = ("scheduler",)
"""The packages that are compiled, with their sub-packages."""

INTERPRETED = (
    "scheduler/decide/preemption/guard.py",
    "scheduler/explain",
    "scheduler/policy.py",
    "scheduler/rounds.py",
    "scheduler/values.py",
    "__init__.py",
)
"""What is not: it decides nothing, is for users to extend and checks what they return, or uses what
mypyc does not know.
"""

FOREIGN = ("Enum", "IntEnum", "NamedTuple", "Protocol", "Node", "TreeNode", "Used")
"""The bases of classes that stay Python's."""

KINDS = {
    "attrs.frozen": (False, True, True),
    "attrs.define": (True, True, False),
    "value": (False, False, False),
    "record": (False, True, True),
}
"""The decorators of attrs classes: whether these change, compare by content, and have a hash."""

OPEN = "@mypyc_attr(allow_interpreted_subclasses=True)"
"""Of classes that are no values: `Engine` is extended, and copies are made without `__init__`."""

HEADER = "from kueuelib._native import Any, ClassVar, describe as _describe, mypyc_attr"

NATIVE = '''"""What compiled modules need at run time; written when the wheel is built."""

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    mypyc_attr = None  # only the compiler reads these decorators


def _reduced(self: Any) -> Any:
    fields = [field for field in type(self).__attrs_attrs__ if field.init]
    return type(self), tuple([getattr(self, field.name) for field in fields])


def describe(cls: Any, types: dict[str, str], options: dict[str, Any]) -> None:
    """Let `attrs`, `copy` and `pickle` take a native class for an attrs class."""
    fields = {name: attrs.field(**options.get(name, {})) for name in types}
    made: Any = attrs.make_class(cls.__name__, fields, eq=False, init=False, repr=False)
    cls.__attrs_attrs__, cls.__match_args__ = made.__attrs_attrs__, made.__match_args__
    cls.__annotations__, cls.__reduce__ = types, _reduced
'''
"""The module that compiled modules share."""


class Unsupported(Exception):
    """A class uses a part of attrs that the rewriting does not know."""


@dataclass
class Field:
    """An attribute of an attrs class; the text of everything is Python."""

    name: str
    type: str
    default: str = ""
    factory: str = ""
    method: str = ""
    init: bool = True
    eq: bool = True
    repr: bool = True

    @property
    def argument(self) -> str:
        """Its name in the constructor."""
        return self.name.lstrip("_")

    @property
    def parameter(self) -> str:
        """Its declaration in the constructor."""
        if self.factory or self.method:
            return f"{self.argument}: {self.type} | None = None"
        return f"{self.argument}: {self.type}" + (f" = {self.default}" if self.default else "")

    @property
    def value(self) -> str:
        """Its value in the constructor."""
        given = self.argument if self.init else self.default
        if not self.factory and not self.method:
            return given
        made = f"self.{self.method}()" if self.method else f"{self.factory}()"
        return f"{made} if {given} is None else {given}" if self.init else made

    @property
    def options(self) -> str:
        """The same for `attrs.field`, without what only constructors need."""
        options = [f"default={self.default}"] if self.default else []
        options += ["factory=object"] if self.factory or self.method else []
        options += [f"{name}=False" for name in ("init", "eq", "repr") if not getattr(self, name)]
        return f"{self.name!r}: dict({', '.join(options)})" if options else ""


@dataclass
class AttrsClass:
    """An attrs class in the source of a module."""

    node: ast.ClassDef
    decorator: ast.expr
    changes: bool
    eq: bool
    hashed: bool
    own: list[Field] = field(default_factory=list)
    bases: list["AttrsClass"] = field(default_factory=list)

    @property
    def fields(self) -> list[Field]:
        """Its fields, after those of its bases."""
        fields: dict[str, Field] = {}
        for each in chain(*(base.fields for base in reversed(self.bases)), self.own):
            fields.pop(each.name, None)
            fields[each.name] = each
        return list(fields.values())

    def methods(self) -> Iterator[str]:
        """The methods that attrs would make, one line each."""
        defined = {each.name for each in self.node.body if isinstance(each, ast.FunctionDef)}
        name, fields = self.node.name, self.fields
        compared = [each for each in fields if each.eq]
        if "__init__" not in defined:
            parameters = ", ".join(["self", *(each.parameter for each in fields if each.init)])
            kinds = [f": {each.type}" if each in self.own else "" for each in fields]
            body = [
                f"self.{each.name}{kind} = {each.value}"
                for each, kind in zip(fields, kinds, strict=True)
            ]
            yield f"def __init__({parameters}) -> None: {'; '.join(body) or 'pass'}"
        if self.eq and "__eq__" not in defined:
            same = " and ".join(f"self.{each.name} == other.{each.name}" for each in compared)
            alike = f"isinstance(other, {name}) and other.__class__ is self.__class__"
            head = "def __eq__(self, other: object) -> Any"
            yield f"{head}: return ({same or True}) if {alike} else NotImplemented"
        if self.hashed and "__hash__" not in defined:
            values = "".join(f"self.{each.name}, " for each in compared)
            yield f"def __hash__(self) -> int: return hash(({values}))"
        if "__repr__" not in defined:
            shown = ", ".join(f"{each.name}={{self.{each.name}!r}}" for each in fields if each.repr)
            yield f"def __repr__(self) -> str: return f'{name}({shown})'"

    @property
    def description(self) -> str:
        """The statement that makes it known to attrs."""
        types = {each.name: each.type for each in self.fields}
        options = ", ".join(filter(None, (each.options for each in self.fields)))
        return f"_describe({self.node.name}, {types!r}, {{{options}}})"


def attrs_class(node: ast.ClassDef) -> AttrsClass | None:
    """The attrs class that a statement defines, without its bases; None if it defines another one.

    Args:
        node: the statement.

    Raises:
        Unsupported: it uses a part of attrs that the rewriting does not know.
    """
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        kind = KINDS.get(ast.unparse(call.func if call else decorator))
        if kind is not None:
            options = call.keywords if call else []
            break
    else:
        return None
    found = AttrsClass(node, decorator, *kind)
    for option in options:
        if option.arg != "eq" or ast.literal_eval(option.value):
            raise Unsupported(f"{node.name}: {ast.unparse(option)}")
        found.eq = found.hashed = False
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.own.append(_field(statement.target.id, statement))
    defaults = {f"{each.name}.default": each for each in found.own}
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            for each in map(ast.unparse, method.decorator_list):
                if each in defaults:
                    defaults[each].method = method.name
    return found


def _field(name: str, statement: ast.AnnAssign) -> Field:
    found = Field(name, ast.unparse(statement.annotation))
    value = statement.value
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "attrs.field":
        found.default = "" if value is None else ast.unparse(value)
        return found
    for option in value.keywords:
        if option.arg in ("init", "eq", "repr"):
            setattr(found, option.arg, ast.literal_eval(option.value))
        elif option.arg in ("default", "factory"):
            setattr(found, option.arg, ast.unparse(option.value))
        else:
            raise Unsupported(f"{name}: {option.arg}")
    return found


def attrs_classes(trees: Iterable[ast.Module]) -> dict[str, AttrsClass]:
    """The attrs classes of some modules, by name."""
    known: dict[str, AttrsClass] = {}
    for node in chain.from_iterable(tree.body for tree in trees):
        if isinstance(node, ast.ClassDef) and (found := attrs_class(node)) is not None:
            if node.name in known:
                raise Unsupported(f"two classes have the name {node.name}")
            known[node.name] = found
    for found in known.values():
        names = (ast.unparse(base).partition("[")[0] for base in found.node.bases)
        found.bases += (known[name] for name in names if name in known)
    return known


def rewritten(source: str, tree: ast.Module, known: Mapping[str, AttrsClass]) -> str:
    """A module in which attrs classes are plain ones; every statement keeps its line.

    Args:
        source: the module.
        tree: the same, parsed.
        known: the attrs classes, by name.
    """
    lines = [*source.splitlines(), "", ""]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found = known.get(node.name)
            if found is not None:
                _rewrite(found, lines)
                lines.append(found.description)
            elif not any(ast.unparse(base) in FOREIGN for base in node.bases):
                assert not lines[node.lineno - 2], f"{node.name} has a decorator"
                lines[node.lineno - 2] = OPEN
    future = next(each for each in tree.body if isinstance(each, ast.ImportFrom))
    lines[future.lineno - 1] += f"; {HEADER}"
    return "\n".join(lines) + "\n"


def _rewrite(found: AttrsClass, lines: list[str]) -> None:
    """Replaces the fields by methods, in their lines and the blank ones around them."""
    node, decorator = found.node, found.decorator
    lines[decorator.lineno - 1] = OPEN if found.changes else "@mypyc_attr(native_class=True)"
    for number in range(decorator.lineno, decorator.end_lineno or 0):
        lines[number] = ""
    docstring, *body = node.body
    free = set(range(docstring.end_lineno or 0, (node.end_lineno or 0) + 2))
    for statement in body:
        start, end = statement.lineno - 1, statement.end_lineno or 0
        if isinstance(statement, ast.AnnAssign | ast.Expr):  # a field, or what is said about it
            continue
        if isinstance(statement, ast.Assign):
            lines[start] = lines[start].replace(" = ", ": ClassVar[Any] = ", 1)
        elif isinstance(statement, ast.FunctionDef):
            for each in statement.decorator_list:
                start = min(start, each.lineno - 1)
                if ast.unparse(each).endswith(".default"):
                    lines[each.lineno - 1] = ""
        free.difference_update(range(start, end))
    texts, places = list(found.methods()), sorted(free)
    if len(places) < len(texts):
        raise Unsupported(f"{node.name}: {len(texts)} lines do not fit into {len(places)}")
    for place in places:
        lines[place] = ""
    for place, text in zip(places, texts, strict=False):
        lines[place] = f"    {text}"


def sources(root: Path) -> list[Path]:
    """The modules to compile, relative to the folder of the package; importers come last."""
    found = chain.from_iterable(sorted((root / package).rglob("*.py")) for package in COMPILED)
    names = [path.relative_to(root) for path in found]
    return [one for one in names if not any(each in one.as_posix() for each in INTERPRETED)]


def transform(root: Path) -> list[Path]:
    """Rewrites the modules to compile in a copy of the package; returns them.

    Args:
        root: the folder of the package.
    """
    (root / "_native.py").write_text(NATIVE)
    modules = sources(root)
    texts = {module: (root / module).read_text() for module in modules}
    trees = {module: ast.parse(text) for module, text in texts.items()}
    known = attrs_classes(trees.values())
    for module, text in texts.items():
        (root / module).write_text(rewritten(text, trees[module], known))
    return modules


SETUP = """
from mypyc.build import mypycify
from setuptools import setup

options = ["--config-file=", "--python-version={version}", "--ignore-missing-imports"]
options.append("--disable-error-code=misc")  # of `attrs.evolve`, which knows only attrs classes
options += {modules!r}
extensions = mypycify(options, opt_level="2", group_name="kueuelib", multi_file=True)
setup(name="kueuelib", packages=[], ext_modules=extensions)
"""
"""The program that compiles; in a process of its own, because setuptools changes its own."""


def compiled(folder: Path) -> list[Path]:
    """Compiles a copy of the package; returns its shared objects.

    Args:
        folder: has the package, and is changed.
    """
    modules = [f"kueuelib/{module}" for module in transform(folder / "kueuelib")]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "setup.py").write_text(SETUP.format(version=version, modules=modules))
    run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder, check=True)
    return [path for path in folder.rglob("*.so") if "build" not in path.parts]


class Compiling(BuildHookInterface[Any]):
    """The build hook."""

    _folder: TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """What a build needs besides hatchling."""
        return ["mypy>=1.19", "setuptools", "attrs>=25.1", "types-PyYAML"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles, and adds the shared objects to the wheel; not to an editable installation."""
        if self.target_name != "wheel" or version == "editable":
            return
        self._folder = TemporaryDirectory()
        folder = Path(self._folder.name)
        shutil.copytree(Path(self.root) / SOURCES, folder / "kueuelib")
        for path in [*compiled(folder), folder / "kueuelib/_native.py"]:
            build_data["force_include"][str(path)] = path.relative_to(folder).as_posix()
        build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, *_: Any) -> None:
        """Removes the temporary folder."""
        if self._folder is not None:
            self._folder.cleanup()
