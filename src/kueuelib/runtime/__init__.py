"""Everything an operator needs, in one import.

```python
from kueuelib.runtime import Context, KubeObject, Operator, crd, frozen, kinds
```

- `crd` makes a CustomResourceDefinition out of a class, `Operator` a program out of functions.
- What an `Operator` is made of, for programs that need more control: `connect` and `Client`,
  `Cluster`, `Cache` and `Informer`, `Controller`, `Manager`, `EventRecorder`, `Elector`,
  `WebhookServer`.
- `kinds`, `predicates` and `errors` are modules: `kinds.CONFIG_MAPS`, `errors.NotFound`.

These names are stable, see docs/stability.md; the modules that they come from are internal. Nothing
here knows about queues. `import kueuelib.runtime` imports nothing: names are imported when they are
used first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import field as field

    from kueuelib import errors as errors
    from kueuelib.api import kinds as kinds
    from kueuelib.api.codec import decode as decode
    from kueuelib.api.codec import encode as encode
    from kueuelib.api.definitions import Column as Column
    from kueuelib.api.definitions import Rule as Rule
    from kueuelib.api.definitions import Version as Version
    from kueuelib.api.definitions import crd as crd
    from kueuelib.api.definitions import crd_of as crd_of
    from kueuelib.api.meta import Condition as Condition
    from kueuelib.api.meta import ConditionedStatus as ConditionedStatus
    from kueuelib.api.meta import KubeObject as KubeObject
    from kueuelib.api.meta import Obj as Obj
    from kueuelib.api.meta import ObjectKey as ObjectKey
    from kueuelib.api.meta import ObjectMeta as ObjectMeta
    from kueuelib.api.meta import Resource as Resource
    from kueuelib.api.meta import is_true as is_true
    from kueuelib.api.meta import key_of as key_of
    from kueuelib.api.meta import labels_of as labels_of
    from kueuelib.api.meta import owner_reference as owner_reference
    from kueuelib.api.quantity import Quantity as Quantity
    from kueuelib.api.struct import Struct as Struct
    from kueuelib.api.struct import Time as Time
    from kueuelib.api.struct import frozen as frozen
    from kueuelib.api.struct import wire as wire
    from kueuelib.errors import FieldError as FieldError
    from kueuelib.errors import TerminalError as TerminalError
    from kueuelib.machinery.options import ElectionOptions as ElectionOptions
    from kueuelib.machinery.store import Delta as Delta
    from kueuelib.runtime import predicates as predicates
    from kueuelib.runtime.cache import Cache as Cache
    from kueuelib.runtime.certificates import server_context as server_context
    from kueuelib.runtime.client import Client as Client
    from kueuelib.runtime.cluster import Cluster as Cluster
    from kueuelib.runtime.connection import connect as connect
    from kueuelib.runtime.connection import wait_for_server as wait_for_server
    from kueuelib.runtime.controller import DONE as DONE
    from kueuelib.runtime.controller import Controller as Controller
    from kueuelib.runtime.controller import Reconciler as Reconciler
    from kueuelib.runtime.controller import Result as Result
    from kueuelib.runtime.events import EventRecorder as EventRecorder
    from kueuelib.runtime.http import MetricsServer as MetricsServer
    from kueuelib.runtime.http import ProbeServer as ProbeServer
    from kueuelib.runtime.informer import Informer as Informer
    from kueuelib.runtime.leader import Elector as Elector
    from kueuelib.runtime.logs import configure
    from kueuelib.runtime.logs import get_logger as get_logger
    from kueuelib.runtime.manager import Group as Group
    from kueuelib.runtime.manager import Manager as Manager
    from kueuelib.runtime.manager import Signals as Signals
    from kueuelib.runtime.operator.context import Context as Context
    from kueuelib.runtime.operator.declaration import Operator as Operator
    from kueuelib.runtime.queries import PatchType as PatchType
    from kueuelib.runtime.telemetry import Telemetry as Telemetry
    from kueuelib.runtime.webhook.admission import AdmissionRequest as AdmissionRequest
    from kueuelib.runtime.webhook.admission import ValidationResult as ValidationResult
    from kueuelib.runtime.webhook.server import WebhookServer as WebhookServer
    from kueuelib.runtime.webhook.trust import CertificateKeeper as CertificateKeeper
    from kueuelib.runtime.webhook.trust import Trusting as Trusting

    configure_logs = configure
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "attrs": "field",
            "kueuelib.api.codec": "decode encode",
            "kueuelib.api.definitions": "Column Rule Version crd crd_of",
            "kueuelib.api.kinds": "kinds",
            "kueuelib.api.meta": "Condition ConditionedStatus KubeObject Obj ObjectKey "
            "ObjectMeta Resource is_true key_of labels_of owner_reference",
            "kueuelib.api.quantity": "Quantity",
            "kueuelib.api.struct": "Struct Time frozen wire",
            "kueuelib.errors": "FieldError TerminalError errors",
            "kueuelib.machinery.options": "ElectionOptions",
            "kueuelib.machinery.store": "Delta",
            "kueuelib.runtime.certificates": "server_context",
            "kueuelib.runtime.cache": "Cache",
            "kueuelib.runtime.client": "Client PatchType",
            "kueuelib.runtime.cluster": "Cluster",
            "kueuelib.runtime.connection": "connect wait_for_server",
            "kueuelib.runtime.controller": "DONE Controller Reconciler Result",
            "kueuelib.runtime.events": "EventRecorder",
            "kueuelib.runtime.http": "MetricsServer ProbeServer",
            "kueuelib.runtime.informer": "Informer",
            "kueuelib.runtime.leader": "Elector",
            "kueuelib.runtime.logs": "configure_logs=configure get_logger",
            "kueuelib.runtime.manager": "Group Manager Signals",
            "kueuelib.runtime.operator.context": "Context",
            "kueuelib.runtime.operator.declaration": "Operator",
            "kueuelib.runtime.predicates": "predicates",
            "kueuelib.runtime.telemetry": "Telemetry",
            "kueuelib.runtime.webhook.admission": "AdmissionRequest ValidationResult",
            "kueuelib.runtime.webhook.server": "WebhookServer",
            "kueuelib.runtime.webhook.trust": "CertificateKeeper Trusting",
        },
    )
