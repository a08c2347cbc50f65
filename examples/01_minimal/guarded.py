"""Refuses to give a Namespace to another team, with a webhook of its own.

Usage: python guarded.py KUBECONFIG PORT; the API server calls https://127.0.0.1:PORT.
"""

import asyncio
import sys
from collections.abc import Sequence

from kueuelib.runtime import (
    AdmissionRequest,
    CertificateKeeper,
    FieldError,
    Group,
    Manager,
    Obj,
    ObjectKey,
    PatchType,
    Signals,
    Trusting,
    WebhookServer,
    connect,
    kinds,
    labels_of,
    server_context,
    wait_for_server,
)

NAME = "team-guard"
PATH = "/validate-team"


def keeps_its_team(new: Obj | None, old: Obj | None, _: AdmissionRequest) -> Sequence[FieldError]:
    """The broken rules; none lets the object pass."""
    if new is None or old is None or labels_of(new).get("team") == labels_of(old).get("team"):
        return ()
    return [FieldError("metadata.labels[team]", "FieldValueInvalid", "a team keeps its namespace")]


def webhook(port: int) -> Obj:
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
    version, kind = kinds.VALIDATING_WEBHOOKS.api_version, kinds.VALIDATING_WEBHOOKS.kind
    return {"apiVersion": version, "kind": kind, "metadata": {"name": NAME}, "webhooks": [hook]}


async def main(kubeconfig: str, port: int) -> None:
    """Runs until SIGTERM or SIGINT."""
    async with await connect(kubeconfig, field_manager=NAME) as client:
        await wait_for_server(client)
        config = webhook(port)
        key = ObjectKey("", NAME)
        await client.patch(kinds.VALIDATING_WEBHOOKS, key, config, PatchType.APPLY, force=True)
        context, manager = server_context(), Manager()
        secret = ObjectKey("default", "team-guard-certificates")
        trusting = [Trusting(kinds.VALIDATING_WEBHOOKS, NAME)]
        server = WebhookServer("127.0.0.1", port, context)
        server.validate(PATH, keeps_its_team)
        keeper = CertificateKeeper(client, [context], secret, ["127.0.0.1"], trusting)
        manager.add(Group.WEBHOOKS, keeper)
        manager.add(Group.WEBHOOKS, server)
        with Signals(manager.stop):
            await manager.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
