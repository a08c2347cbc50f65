"""Compiles the pure packages with mypyc when a wheel is built, if the builder asks for it.

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 pip wheel --no-deps .

The sources stay as they are: a copy is rewritten and compiled in a temporary folder, and its shared
objects go into the wheel, beside the modules that they replace. The rewriting turns every attrs
class into the plain class that it stands for, because mypyc makes only plain classes native. Line
numbers don't change, so tracebacks show the lines of the modules.
"""

import ast
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = "src/kueuelib"

COMPILED = ("machinery", "scheduler", "workload")
"""The packages that are compiled, with their sub-packages."""

INTERPRETED = (
    "machinery/event_series.py",
    "scheduler/decide/preemption/guard.py",
    "scheduler/explain",
    "scheduler/policy.py",
    "scheduler/rounds.py",
    "scheduler/values.py",
    "workload/served.py",
    "workload/writer.py",
    "__init__.py",
)
"""What is not: it decides nothing, has coroutines (compiled ones see errors of others), is for
users to extend and checks what they return, or uses what mypyc does not know.
"""

FOREIGN = {"Enum", "IntEnum", "NamedTuple", "Protocol", "Node", "TreeNode", "Used"}
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

HEADER = (
    "from kueuelib._native import Any, ClassVar, mypyc_attr, "
    "describe as _describe, validate as _validate"
)

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


def _shown(self: Any) -> str:
    fields = [field.name for field in type(self).__attrs_attrs__ if field.repr]
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
    return f"{type(self).__name__}({values})"


def validate(instance: Any, name: str, validator: Any) -> None:
    """Check a value as attrs does."""
    field = next(field for field in type(instance).__attrs_attrs__ if field.name == name)
    validator(instance, field, getattr(instance, name))


def describe(cls: Any, types: dict[str, str], options: dict[str, Any]) -> None:
    """Let `attrs`, `copy`, `pickle` and `repr` take a native class for an attrs class."""
    fields = {name: attrs.field(**options.get(name, {})) for name in types}
    made: Any = attrs.make_class(cls.__name__, fields, eq=False, init=False, repr=False)
    cls.__attrs_attrs__, cls.__match_args__ = made.__attrs_attrs__, made.__match_args__
    cls.__annotations__, cls.__reduce__ = types, _reduced
    if "__repr__" not in vars(cls):
        cls.__repr__ = _shown
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
    converter: str = ""
    validator: str = ""
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
        if self.converter:
            return f"{self.argument}: Any" + (f" = {self.default}" if self.default else "")
        if self.factory or self.method:
            return f"{self.argument}: {self.type} | None = None"
        return f"{self.argument}: {self.type}" + (f" = {self.default}" if self.default else "")

    @property
    def value(self) -> str:
        """Its value in the constructor."""
        given = self.argument if self.init else self.default
        given = f"{self.converter}({given})" if self.converter else given
        if not self.factory and not self.method:
            return given
        made = f"self.{self.method}()" if self.method else f"({self.factory})()"
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
        if fields and "__init__" not in defined:
            parameters = ", ".join(["self", *(each.parameter for each in fields if each.init)])
            kinds = [f": {each.type}" if each in self.own else "" for each in fields]
            body = [
                f"self.{each.name}{kind} = {each.value}"
                for each, kind in zip(fields, kinds, strict=True)
            ]
            body += [
                f"_validate(self, {each.name!r}, {each.validator})"
                for each in fields
                if each.validator
            ]
            if "__attrs_post_init__" in defined:
                body.append("self.__attrs_post_init__()")
            yield f"def __init__({parameters}) -> None: {'; '.join(body) or 'pass'}"
        if self.eq and "__eq__" not in defined:
            same = " and ".join(f"self.{each.name} == other.{each.name}" for each in compared)
            alike = f"isinstance(other, {name}) and other.__class__ is self.__class__"
            head = "def __eq__(self, other: object) -> Any"
            yield f"{head}: return ({same or True}) if {alike} else NotImplemented"
        if self.hashed and "__hash__" not in defined:
            values = "".join(f"self.{each.name}, " for each in compared)
            yield f"def __hash__(self) -> int: return hash(({values}))"

    @property
    def description(self) -> str:
        """The statement that makes it known to attrs."""
        types = {each.name: each.type for each in self.fields}
        options = ", ".join(filter(None, (each.options for each in self.fields)))
        return f"_describe({self.node.name}, {types!r}, {{{options}}})"


def attrs_class(node: ast.ClassDef) -> AttrsClass | None:
    """The attrs class that a statement defines, without its bases; None if it defines none.

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
    own = {each.name: each for each in found.own}
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            for text in map(ast.unparse, method.decorator_list):
                name, _, role = text.partition(".")
                if role == "default":
                    own[name].method = method.name
                elif role == "validator":
                    own[name].validator = f"{node.name}.{method.name}"
    return found


def base_names(node: ast.ClassDef) -> list[str]:
    """The names of the bases of a class, without modules and parameters."""
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def _field(name: str, statement: ast.AnnAssign) -> Field:
    found = Field(name, ast.unparse(statement.annotation))
    value = statement.value
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "attrs.field":
        found.default = "" if value is None else ast.unparse(value)
        return found
    for option in value.keywords:
        if option.arg in ("init", "eq", "repr"):
            setattr(found, option.arg, ast.literal_eval(option.value))
        elif option.arg in ("default", "factory", "converter", "validator"):
            setattr(found, option.arg, ast.unparse(option.value))
        else:
            raise Unsupported(f"{name}: {option.arg}")
    return found


def attrs_classes(trees: Mapping[str, ast.Module]) -> dict[str, dict[str, AttrsClass]]:
    """The attrs classes of some modules, by module and name.

    Args:
        trees: the modules, by the name with which others import them.
    """
    known: dict[str, dict[str, AttrsClass]] = {}
    for module, tree in trees.items():
        nodes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        known[module] = {node.name: found for node in nodes if (found := attrs_class(node))}
    seen: dict[str, dict[str, AttrsClass]] = {}
    for module, tree in trees.items():
        seen[module] = dict(known[module])
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module in known:
                there = known[node.module]
                seen[module] |= {n.name: there[n.name] for n in node.names if n.name in there}
    for module, classes in known.items():
        for found in classes.values():
            names = base_names(found.node)
            found.bases += (seen[module][name] for name in names if name in seen[module])
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
                if found.fields:  # at once, because the module may use it
                    after = node.end_lineno or 0
                    lines[after + bool(lines[after])] = found.description
                else:
                    lines.append(found.description)
            elif not node.decorator_list and not FOREIGN.intersection(base_names(node)):
                assert not lines[node.lineno - 2], f"{node.name} has no free line before it"
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
    matched = "".join(f"{each.name!r}, " for each in found.fields if each.init)
    lines[(docstring.end_lineno or 0) - 1] += f"; __match_args__: ClassVar = ({matched})"
    behind = 1 if found.fields else 2  # of the two blank lines, one may be for the description
    free = set(range(docstring.end_lineno or 0, (node.end_lineno or 0) + behind))
    for statement in body:
        start, end = statement.lineno - 1, statement.end_lineno or 0
        if isinstance(statement, ast.AnnAssign | ast.Expr):  # a field, or what is said about it
            continue
        if isinstance(statement, ast.Assign):
            lines[start] = lines[start].replace(" = ", ": ClassVar[Any] = ", 1)
        elif isinstance(statement, ast.FunctionDef):
            for each in statement.decorator_list:
                start = min(start, each.lineno - 1)
                if ast.unparse(each).endswith((".default", ".validator")):
                    lines[each.lineno - 1] = ""
        free.difference_update(range(start, end))
    texts, places = list(found.methods()), sorted(free)
    if len(places) > len(texts) and found.fields:
        places.pop()  # the line behind the class, for its description
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
    names = {f"kueuelib.{'.'.join(path.with_suffix('').parts)}": path for path in modules}
    known = attrs_classes({name: trees[path] for name, path in names.items()})
    for name, path in names.items():
        (root / path).write_text(rewritten(texts[path], trees[path], known[name]))
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
