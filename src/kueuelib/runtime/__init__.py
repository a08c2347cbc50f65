"""Async shells: transport, client, informers, controllers, manager, webhooks.

A controller is made of these, in the order in which they start; nothing here knows about queues:

- `connect.connect`, `connect.wait_for_server`: from a kubeconfig to a `client.Client`
- `cache.Cache`: shared `informer.Informer`s, each with a store and handlers
- `controller.Controller`: keys from informers, through a work queue, to a `Reconciler`
- `manager.Manager`, `manager.Group`, `manager.Signals`: start and stop everything in order
- `events.EventRecorder`, `leader.Elector`, `http.ProbeServer`, `http.MetricsServer`,
  `telemetry.Telemetry`, `logs.configure`
- `webhook.server.WebhookServer`, `webhook.trust.CertificateKeeper`

Kinds are values: `kueuelib.api.kinds` has those that kueuelib uses, and one of your own is
`kueuelib.api.meta.Resource("example.com", "v1", "widgets", "Widget", namespaced=True)`. A program
of less than 60 lines is in `examples/01_minimal`.
"""
