"""Two replicas of a program: one leads, the other takes over; a metric says which one it is."""

import asyncio
from collections.abc import Callable
from urllib.request import urlopen

from kueuelib import runtime as rt
from kueuelib.embedded import ApiServer
from kueuelib.testing import eventually, free_port


class Replica:
    """What one process would run; the replica itself is the part that only the leader runs."""

    def __init__(self, name: str, client: rt.Client) -> None:
        self.name, self.leads, self.port = name, False, free_port()
        telemetry = rt.Telemetry()
        lease = rt.ObjectKey("default", "work")
        options = rt.ElectionOptions(lease, name, retry_period=0.5, release_on_cancel=True)
        self.manager = rt.Manager(elector=rt.Elector(client, options, telemetry=telemetry))
        self.manager.add(rt.Group.SERVERS, rt.MetricsServer("127.0.0.1", self.port, telemetry))
        self.manager.add(rt.Group.ELECTED, self)

    async def run(self, ready: Callable[[], None]) -> None:
        """Work until cancelled."""
        self.leads = True
        print(self.name, "leads")
        ready()
        await asyncio.Event().wait()

    async def shows(self) -> None:
        """Print the metric, as Prometheus reads it."""
        page = await asyncio.to_thread(urlopen, f"http://127.0.0.1:{self.port}/metrics")
        print(*(line for line in page.read().decode().splitlines() if "_master_status{" in line))


async def main() -> None:
    """Start both, stop the leader."""
    async with ApiServer() as server, server.client() as client:
        a, b = Replica("a", client), Replica("b", client)
        first = asyncio.create_task(a.manager.run())
        await eventually(lambda: a.leads)
        second = asyncio.create_task(b.manager.run())
        a.manager.stop()
        await first
        await eventually(lambda: b.leads)
        await b.shows()
        b.manager.stop()
        await second


if __name__ == "__main__":
    rt.configure_logs(level="error")
    asyncio.run(main())

# Prints:
# a leads
# b leads
# leader_election_master_status{name="work"} 1.0
