"""The pytest plug-in: an API server for each test that requests one, and storms.

```python
@pytest.mark.api_server(simulate=True)
async def test_my_operator(api_server, kube_client): ...


def test_my_script(kubeconfig):
    subprocess.run(["kubectl", "get", "pods"], env={"KUBECONFIG": str(kubeconfig)}, check=True)
```

The options of the marker are those of `kueuelib.testing.background.BackgroundServer`.
`kube_client` needs pytest-asyncio; the others work in every test.

The fixture `local_node` starts `kueuelib node` beside the server, so that pods on it really run:

```python
@pytest.mark.api_server(simulate=True)
@pytest.mark.local_node(images={"worker": sys.prefix})
async def test_my_worker(local_node, kube_client): ...
```

The fixture `storm` plays storms, see `kueuelib.testing.hostile`. `--storm-seeds FIRST:LAST` chooses
the seeds of all tests that use it, `--storm-replay SEED` prints the timeline of one.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from kueuelib.runtime.client import Client
    from kueuelib.testing.background import BackgroundServer
    from kueuelib.testing.hostile import Storm

F = TypeVar("F", bound=Callable[..., Any])
async_fixture: Callable[[F], F] = pytest.fixture  # type: ignore[assignment]
if find_spec("pytest_asyncio") is not None:
    import pytest_asyncio

    async_fixture = pytest_asyncio.fixture  # type: ignore[assignment]

MARKER, NODE_MARKER = "api_server", "local_node"


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(simulate=False, authorization='always', start_time=None): how the server of "
        "the test is to be",
    )
    config.addinivalue_line(
        "markers",
        f"{NODE_MARKER}(images, options=()): the folder for each image of the node, and further "
        "options of `kueuelib node`",
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of storms."""
    group = parser.getgroup("storms", "storms of kueuelib.testing.hostile")
    group.addoption(
        "--storm-seeds", metavar="FIRST:LAST", help="play these seeds, the last one included"
    )
    group.addoption(
        "--storm-replay",
        type=int,
        metavar="SEED",
        help="play one seed and show all of its timeline",
    )


@pytest.fixture
def storm(request: pytest.FixtureRequest) -> Storm:
    """Plays storms against a program; see `kueuelib.testing.hostile`."""
    from kueuelib.testing.hostile import Storm

    text = request.config.getoption("storm_seeds")
    return Storm(
        again=f"pytest {shlex.quote(request.node.nodeid)}",
        seeds=None if text is None else _seeds(text),
        replayed=request.config.getoption("storm_replay"),
    )


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    try:
        seeds = range(int(first), int(last if colon else first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise pytest.UsageError(f"--storm-seeds {text}: use FIRST:LAST, for example 1:100")
    return seeds


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        options.update(_checked(marker))
    return options


def _checked(marker: pytest.Mark) -> Mapping[str, Any]:
    """The options of a marker.

    Raises:
        pytest.UsageError: it has an unknown option.
    """
    from kueuelib.testing.background import BackgroundServer

    options = list(signature(BackgroundServer).parameters)
    known = ", ".join(f"{name}=" for name in options)
    if marker.args:
        raise pytest.UsageError(
            f"@pytest.mark.{MARKER}: {marker.args[0]!r} has no name; give options by name: {known}"
        )
    for name in marker.kwargs:
        if name not in options:
            near = get_close_matches(name, options, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise pytest.UsageError(
                f"@pytest.mark.{MARKER}: there is no option {name!r}{hint}; known: {known}"
            )
    return marker.kwargs


@pytest.fixture
def api_server(request: pytest.FixtureRequest) -> Iterator[BackgroundServer]:
    """An API server for this test only."""
    from kueuelib.testing.background import BackgroundServer

    with BackgroundServer(**_options(request)) as server:
        yield server


@pytest.fixture
def kubeconfig(api_server: BackgroundServer, tmp_path: Path) -> Path:
    """A file with the administrator's credentials for `api_server`."""
    return api_server.write_kubeconfig(tmp_path / "kubeconfig")


@async_fixture
async def kube_client(api_server: BackgroundServer) -> AsyncIterator[Client]:
    """A client of `api_server` with the administrator's credentials."""
    async with api_server.client() as connected:
        yield connected


@pytest.fixture
def local_node(
    request: pytest.FixtureRequest, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name of a node whose pods are local processes; it needs the mark `local_node`."""
    from kueuelib.testing.processes import Processes, start_node

    def mark(images: Mapping[str, str], options: Sequence[str] = ()) -> Any:
        return images, options

    usage = f'write @pytest.mark.{NODE_MARKER}(images={{"worker": sys.prefix}})'
    marker = request.node.get_closest_marker(NODE_MARKER)
    if marker is None:
        raise pytest.UsageError(usage)
    try:
        images, more = mark(*marker.args, **marker.kwargs)
    except TypeError as error:
        problem = str(error).rpartition("mark() ")[2]
        raise pytest.UsageError(f"{usage}: it {problem}") from None
    if not _options(request).get("simulate"):
        raise pytest.UsageError(
            f"write @pytest.mark.{MARKER}(simulate=True), too: a pod needs a scheduler"
        )
    with Processes(tmp_path_factory.mktemp("node")) as processes:
        start_node(processes, kubeconfig, images, *more)
        yield "local"
