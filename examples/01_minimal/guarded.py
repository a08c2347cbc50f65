"""Refuses to give a Namespace to another team, with a webhook of its own.

Usage: python guarded.py KUBECONFIG PORT; the API server calls https://127.0.0.1:PORT.
"""

import asyncio
import sys
from collections.abc import Sequence

from kueuelib import runtime as rt

NAME = "team-guard"
PATH = "/validate-team"


def keeps_its_team(
    new: rt.Obj | None, old: rt.Obj | None, _: rt.AdmissionRequest
) -> Sequence[rt.FieldError]:
    """The broken rules; none lets the object pass."""
    if new is None or old is None or rt.labels_of(new).get("team") == rt.labels_of(old).get("team"):
        return ()
    return [
        rt.FieldError("metadata.labels[team]", "FieldValueInvalid", "a team keeps its namespace")
    ]


def webhook(port: int) -> rt.Obj:
    """What the API server has to know."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"]}
    hook = {
        "name": "team-guard.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}{PATH}"},
        "rules": [{**rule, "operations": ["UPDATE"]}],
        "objectSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    return rt.kinds.VALIDATING_WEBHOOKS.new(NAME, webhooks=[hook])


async def main(kubeconfig: str, port: int) -> None:
    """Runs until SIGTERM or SIGINT."""
    async with await rt.connect(kubeconfig, field_manager=NAME) as client:
        await rt.wait_for_server(client)
        await client.apply(rt.kinds.VALIDATING_WEBHOOKS, webhook(port))
        context, manager = rt.server_context(), rt.Manager()
        secret = rt.ObjectKey("default", "team-guard-certificates")
        trusting = [rt.Trusting(rt.kinds.VALIDATING_WEBHOOKS, NAME)]
        server = rt.WebhookServer("127.0.0.1", port, context)
        server.validate(PATH, keeps_its_team)
        keeper = rt.CertificateKeeper(client, [context], secret, ["127.0.0.1"], trusting)
        manager.add(rt.Group.WEBHOOKS, keeper)
        manager.add(rt.Group.WEBHOOKS, server)
        with rt.Signals(manager.stop):
            await manager.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
