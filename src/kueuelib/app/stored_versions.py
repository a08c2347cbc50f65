"""Lists queueing objects even while their conversion webhook does not answer.

An API server needs no webhook for objects in the version in which they are stored. The continue
tokens of a list are the same in all versions of a kind. So each page is read in any version that
the server can give, and converted here. A page of objects that are stored in different versions
cannot be given in any of them: then the pages become smaller.

A webhook that hangs makes the server answer after half a minute. So the versions race once a
conversion has failed: a page that needs none arrives at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final
from weakref import WeakSet

import anyio
import attrs

from kueuelib.api.conversion import convert
from kueuelib.api.kinds import KUEUE, VERSIONS
from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import ApiError, KueuelibError, NotFound, ServerError, TransportError
from kueuelib.machinery.options import PAGE_SIZE
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import ObjectList

CONVERSION: Final = "conversion webhook for "
"""How an API server begins a message about a conversion webhook that failed."""
PATIENCE: Final = 3.0
"""Seconds that a page of several objects may take, and one object before it is read in another
version as well.
"""
_ONE_SECONDS, _MORE_SECONDS = 5.0, 1.0
"""Seconds that a page of one or several objects may take once a conversion has failed."""
_START_SECONDS: Final = 0.02
"""Seconds between the starts of two versions then, for each object of the page."""
_FAILING: WeakSet[Client] = WeakSet()
"""Clients whose server failed to convert an object. The kinds share one webhook, so the versions of
each further kind race from the start.
"""


@attrs.frozen
class ListedObjects:
    """The objects of a kind.

    Attributes:
        objects: raw, in the version that was asked for.
        failure: why the API server could not convert some of them; None if it could.
        complete: whether all objects could be read.
    """

    objects: list[Obj]
    failure: ApiError | None = None
    complete: bool = True


def is_unconverted(error: KueuelibError | None) -> bool:
    """Whether an API server failed because a conversion webhook did."""
    return isinstance(error, ApiError) and CONVERSION in str(error)


async def list_stored(
    client: Client, resource: Resource, namespace: str = "", label_selector: str = ""
) -> ListedObjects:
    """Every object of a kind, read page by page.

    Args:
        client: whose cluster.
        resource: the kind, in the version to return.
        namespace: the only one; empty for all.
        label_selector: of the objects.

    Raises:
        ApiError: the server refused something else than a conversion.
        TransportError: the server did not answer.
    """
    reading = StoredReading(client, resource, namespace, label_selector)
    objects = [obj async for obj in reading.objects()]
    return ListedObjects(objects, reading.failure, complete=reading.complete)


@attrs.define
class PageSizes:
    """The size of the next page.

    After a page that could not be read, the size is one. It doubles after some pages of one size.
    The more pages have failed, the more have to succeed first, so few requests fail in any mixture.
    """

    size: int = PAGE_SIZE
    _wanted: int = 1
    _read: int = 0

    def read(self) -> None:
        """A page was read."""
        self._read += 1
        if self._read >= self._wanted:
            self.size, self._read = min(2 * self.size, PAGE_SIZE), 0

    def failed(self) -> None:
        """A page could not be read."""
        self.size, self._wanted, self._read = 1, 2 * self._wanted, 0


class StoredReading:
    """Reads the objects of a kind one time; see `list_stored` for the arguments.

    Attributes:
        failure: why the API server could not convert some objects; None if it could.
        complete: whether all objects could be read.
    """

    def __init__(
        self, client: Client, resource: Resource, namespace: str = "", label_selector: str = ""
    ) -> None:
        self.failure: ApiError | None = None
        self.complete = True
        self._client = client
        self._resource = resource
        self._where = namespace, label_selector
        self._versions = list(_versions(resource))

    async def objects(self) -> AsyncIterator[Obj]:
        """The objects, as far as they can be read.

        Raises:
            ApiError: the server refused something else than a conversion.
            TransportError: the server did not answer.
        """
        # A page of several objects may time out again; a single object arrives soon.
        sizes, token = PageSizes(1 if self._client in _FAILING else PAGE_SIZE), ""
        while True:
            page = await self._page(sizes.size, token)
            if page is None:
                if sizes.size == 1:
                    self.complete = False
                    return
                sizes.failed()
                continue
            for obj in page.items:
                yield _in_version(obj, self._resource)
            token = page.continue_token
            if not token:
                return
            sizes.read()

    async def _page(self, size: int, token: str) -> ObjectList | None:
        """A page in the first version that the server gives; None if it gives none in time."""
        if self._resource.group != KUEUE:
            return await self._ask(self._resource, size, token, None)
        failing = self._client in _FAILING
        seconds, pause = None if size == 1 else PATIENCE, PATIENCE
        if failing:
            seconds = _ONE_SECONDS if size == 1 else _MORE_SECONDS
            pause = min(size * _START_SECONDS, _MORE_SECONDS)
        alone = size > 1 and not failing  # a large page may be late for other reasons
        pages: list[tuple[Resource, ObjectList]] = []
        problems: list[KueuelibError] = []

        async def ask(version: Resource, failed: anyio.Event) -> None:
            try:
                page = await self._ask(version, size, token, seconds)
            except KueuelibError as error:
                if isinstance(error, NotFound) and version != self._resource:
                    self._versions.remove(version)
                else:
                    problems.append(error)
                failed.set()
            else:
                pages.append((version, page))
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for version in self._versions[:1] if alone else tuple(self._versions):
                failed = anyio.Event()
                group.start_soon(ask, version, failed)
                with anyio.move_on_after(pause):
                    await failed.wait()
        self._judge(size, problems)
        if not pages:
            return None
        version, page = pages[0]
        if self.failure is None and version != self._resource:
            self._fails(self._hangs("no answer in time"))
        self._versions.sort(key=lambda one: one != version)
        return page

    async def _ask(
        self, version: Resource, size: int, token: str, seconds: float | None
    ) -> ObjectList:
        namespace, selector = self._where
        return await self._client.list(
            version,
            namespace,
            label_selector=selector,
            limit=size,
            continue_token=token,
            timeout=seconds,
        )

    def _judge(self, size: int, problems: list[KueuelibError]) -> None:
        """Notes a failed conversion.

        Raises:
            KueuelibError: something else failed.
        """
        for error in problems:
            if isinstance(error, ApiError) and is_unconverted(error):
                self._fails(error)
            elif not isinstance(error, TransportError) or not error.timed_out:
                raise error
            elif size == 1 and self.failure is None:
                self._fails(self._hangs(str(error)))

    def _fails(self, error: ApiError) -> None:
        self.failure = error
        _FAILING.add(self._client)

    def _hangs(self, why: str) -> ApiError:
        kind = f"{self._resource.api_version}, Kind={self._resource.kind}"
        return ServerError(f"{CONVERSION}{kind} seems to hang: {why}")


def _versions(resource: Resource) -> Iterator[Resource]:
    """The kind in its versions, the given one first."""
    yield resource
    if resource.group == KUEUE:
        yield from (resource.at(one) for one in VERSIONS if one != resource.version)


def _in_version(obj: Obj, resource: Resource) -> Obj:
    if obj.get("apiVersion", resource.api_version) == resource.api_version:
        return obj
    return convert(obj, resource.version)
