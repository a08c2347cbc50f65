"""How the parts of pods merge; lists and maps that are not named here are atomic and granular."""

from __future__ import annotations

from typing import Final

from kueuelib.embedded.schema.shorthand import (
    ATOMIC,
    INTEGER,
    OPEN,
    TEXT,
    TEXTS,
    UNIQUE,
    default,
    listed,
    merged_by,
    struct,
)

CONDITIONS: Final = listed(struct(type_=TEXT), "type")

METADATA: Final = struct(
    name=TEXT,
    namespace=TEXT,
    generateName=TEXT,
    labels=TEXTS,
    annotations=TEXTS,
    finalizers=UNIQUE,
    ownerReferences=listed(ATOMIC, "uid"),
)

_ENV_SOURCE: Final = struct(
    configMapKeyRef=ATOMIC, secretKeyRef=ATOMIC, fieldRef=ATOMIC, resourceFieldRef=ATOMIC
)

_HANDLER: Final = struct(exec_=OPEN, httpGet=OPEN, tcpSocket=OPEN, sleep=OPEN)
_PROBE: Final = struct(exec_=OPEN, httpGet=OPEN, tcpSocket=OPEN, grpc=OPEN)
_SECURITY: Final = struct(capabilities=OPEN, seLinuxOptions=OPEN, seccompProfile=OPEN)

RESOURCES: Final = struct(
    limits=TEXTS, requests=TEXTS, claims=listed(struct(name=TEXT), "name", replaced=True)
)

CONTAINER: Final = struct(
    name=TEXT,
    image=TEXT,
    env=listed(struct(name=TEXT, value=TEXT, valueFrom=_ENV_SOURCE), "name"),
    ports=listed(
        struct(containerPort=INTEGER, protocol=default("TCP"), name=TEXT),
        "containerPort",
        "protocol",
    ),
    volumeMounts=listed(struct(mountPath=TEXT, name=TEXT), "mountPath"),
    volumeDevices=listed(struct(devicePath=TEXT, name=TEXT), "devicePath"),
    resources=RESOURCES,
    livenessProbe=_PROBE,
    readinessProbe=_PROBE,
    startupProbe=_PROBE,
    lifecycle=struct(postStart=_HANDLER, preStop=_HANDLER),
    securityContext=_SECURITY,
)

_VOLUME: Final = struct(
    name=TEXT,
    configMap=OPEN,
    secret=OPEN,
    emptyDir=OPEN,
    hostPath=OPEN,
    persistentVolumeClaim=OPEN,
    projected=OPEN,
    downwardAPI=OPEN,
    csi=struct(nodePublishSecretRef=ATOMIC, volumeAttributes=TEXTS),
)

_AFFINITY: Final = struct(
    nodeAffinity=struct(requiredDuringSchedulingIgnoredDuringExecution=ATOMIC),
    podAffinity=OPEN,
    podAntiAffinity=OPEN,
)

POD_SPEC: Final = struct(
    containers=listed(CONTAINER, "name"),
    initContainers=listed(CONTAINER, "name"),
    ephemeralContainers=listed(CONTAINER, "name"),
    volumes=listed(_VOLUME, "name"),
    imagePullSecrets=listed(ATOMIC, "name"),
    hostAliases=listed(struct(ip=TEXT), "ip"),
    topologySpreadConstraints=listed(
        struct(topologyKey=TEXT, whenUnsatisfiable=TEXT, labelSelector=ATOMIC),
        "topologyKey",
        "whenUnsatisfiable",
    ),
    schedulingGates=listed(struct(name=TEXT), "name"),
    resourceClaims=listed(struct(name=TEXT), "name"),
    nodeSelector=ATOMIC,
    affinity=_AFFINITY,
    overhead=TEXTS,
    resources=RESOURCES,
    securityContext=struct(seLinuxOptions=OPEN, seccompProfile=OPEN),
    dnsConfig=OPEN,
)

POD_STATUS: Final = struct(
    conditions=CONDITIONS,
    podIPs=listed(struct(ip=TEXT), "ip"),
    hostIPs=merged_by(struct(ip=TEXT), "ip"),
    resourceClaimStatuses=listed(struct(name=TEXT), "name"),
)

POD_TEMPLATE: Final = struct(metadata=METADATA, spec=POD_SPEC)
