"""A hub whose servers are in the queue of the namespace $TEAM; $HUB_PORTS are four free ports."""

from __future__ import annotations

import os
from typing import Any

c: Any = get_config()  # type: ignore[name-defined] # noqa: F821

public, hub, proxy, server = (int(port) for port in os.environ["HUB_PORTS"].split(","))
c.JupyterHub.bind_url = f"http://127.0.0.1:{public}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = [os.environ["HUB_PROXY"]]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
scopes = ["admin:users", "admin:servers", "access:servers", "read:servers"]
c.JupyterHub.services = [{"name": "test", "api_token": os.environ["HUB_TOKEN"]}]
c.JupyterHub.load_roles = [{"name": "test", "scopes": scopes, "services": ["test"]}]

c.JupyterHub.spawner_class = "kueuelib.integrations.kubespawner.QueuedKubeSpawner"
c.QueuedKubeSpawner.local_queue = "team"
c.QueuedKubeSpawner.namespace = os.environ["TEAM"]
c.QueuedKubeSpawner.image = "local"
c.QueuedKubeSpawner.cmd = ["jupyterhub-singleuser"]
c.QueuedKubeSpawner.cpu_guarantee = 1
c.QueuedKubeSpawner.port = server
c.QueuedKubeSpawner.start_timeout = 5
c.QueuedKubeSpawner.http_timeout = 120
c.QueuedKubeSpawner.poll_interval = 1
c.QueuedKubeSpawner.delete_grace_period = 1
