"""The manager as a Deployment, with the objects around its pods, in raw form.

Two replicas run: one has the Lease and decides, the other serves webhooks too and keeps its caches
warm, so that it takes over within a few seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import attrs

from kueuelib import __version__
from kueuelib.api.meta import Obj
from kueuelib.app.configuration import CONFIG_FILE, CONFIG_MAP, KIND, Configuration
from kueuelib.app.configuration_text import V1BETA2
from kueuelib.app.dashboards import dashboard_text
from kueuelib.controllers.manifests import APP, METRICS_SERVICE, SERVICE_ACCOUNT, WEBHOOK_PORT
from kueuelib.errors import ConfigError

NAME = SERVICE_ACCOUNT
METRICS_PORT = 8443
HEALTH_PORT = 8081
DASHBOARDS = "kueue-dashboards"
MONITOR = "kueue-controller-manager-metrics-monitor"
DASHBOARD_LABELS = {"grafana_dashboard": "1"}
"""By which the Helm chart of Grafana finds dashboards."""
CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - in the container
"""The default folder of certificates in a container."""
USER = 65532
"""The user of the image, which owns nothing in it."""
CONFIGURATION = (
    f"apiVersion: {V1BETA2}\nkind: {KIND}\nintegrations:\n  frameworks: [batch/job, pod]\n"
)
"""The default configuration."""
RESOURCES: Obj = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}


_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_TAG = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"@[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,}"
_IMAGE = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?:{_TAG})?(?:{_DIGEST})?")


def checked_image(text: str) -> str:
    """The name of an image that a kubelet can pull.

    Raises:
        ConfigError: it is not such a name.
    """
    if not _IMAGE.fullmatch(text):
        raise ConfigError(
            f"--image {text!r}",
            "is not the name of an image",
            "write [REGISTRY/]NAME[:TAG], with a NAME in lower case",
        )
    return text


@attrs.frozen
class Deployed:
    """A manager that runs in the cluster.

    Attributes:
        image: with kueuelib in it.
        replicas: the number of pods; one of them decides.
        config: the text of the configuration file.
        resources: what a pod asks for, and its limits.
        service_monitor: whether a ServiceMonitor of the Prometheus operator is written.
        dashboards: whether a ConfigMap with the dashboard for Grafana is written.
        visibility_port: where the visibility API is served; None when it is not.
        certificates: the Secret with certificates from elsewhere, and the folder where the
            configuration expects them; None when the manager makes its own.
    """

    image: str = attrs.field(factory=lambda: f"kueuelib:{__version__}")
    replicas: int = 2
    config: str = CONFIGURATION
    resources: Obj = attrs.field(factory=lambda: RESOURCES)
    service_monitor: bool = False
    dashboards: bool = False
    visibility_port: int | None = None
    certificates: tuple[str, str] | None = None

    @property
    def ports(self) -> dict[str, int]:
        """The ports of a pod by name."""
        ports = {"webhook-server": WEBHOOK_PORT, "health": HEALTH_PORT, "metrics": METRICS_PORT}
        if self.visibility_port is not None:
            ports["visibility"] = self.visibility_port
        return ports

    def manifests(self, namespace: str) -> list[Obj]:
        """Everything, in the order of creation."""
        wanted = [
            *([_service_monitor(namespace)] if self.service_monitor else []),
            *([_dashboards(namespace)] if self.dashboards else []),
        ]
        return [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": _meta(CONFIG_MAP, namespace),
                "data": {CONFIG_FILE: self.config},
            },
            _metrics_service(namespace),
            _network_policy(namespace, self.ports.values()),
            _disruption_budget(namespace),
            self._deployment(namespace),
            *wanted,
        ]

    def _deployment(self, namespace: str) -> Obj:
        mounted = [] if self.certificates is None else [self.certificates]
        pod = {
            "serviceAccountName": SERVICE_ACCOUNT,
            "containers": [self._container()],
            "volumes": [
                {"name": "config", "configMap": {"name": CONFIG_MAP}},
                {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
                *({"name": "certificates", "secret": {"secretName": name}} for name, _ in mounted),
            ],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": 30,
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": dict(APP)},
                }
            ],
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _meta(NAME, namespace),
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": dict(APP)},
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
                },
                "template": {"metadata": {"labels": dict(APP)}, "spec": pod},
            },
        }

    def _container(self) -> Obj:
        mounted = [] if self.certificates is None else [self.certificates]
        return {
            "name": "manager",
            "image": self.image,
            "args": ["manager", "--config", f"/etc/kueue/{CONFIG_FILE}"],
            "ports": [
                {"name": name, "containerPort": port, "protocol": "TCP"}
                for name, port in self.ports.items()
            ],
            "startupProbe": {**_probe("/healthz"), "periodSeconds": 2, "failureThreshold": 60},
            "livenessProbe": {**_probe("/healthz"), "periodSeconds": 20},
            "readinessProbe": {**_probe("/readyz"), "periodSeconds": 10},
            "resources": self.resources,
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            },
            "volumeMounts": [
                {"name": "config", "mountPath": "/etc/kueue", "readOnly": True},
                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - in the container
                *(
                    {"name": "certificates", "mountPath": folder, "readOnly": True}
                    for _, folder in mounted
                ),
            ],
        }


def certificates_of(configuration: Configuration, source: Path) -> tuple[str, str] | None:
    """The Secret with certificates from elsewhere and its folder, as `Deployed` takes them.

    Raises:
        ConfigError: the folder cannot be mounted into a container.
    """
    wanted = configuration.internal_cert_management
    if wanted.enable:
        return None
    folder = configuration.webhook.cert_dir or CERTIFICATES
    if not folder.startswith("/"):
        raise ConfigError(
            str(source), f"webhook.certDir: {folder!r} is not a whole path", "begin it with /"
        )
    return wanted.webhook_secret_name, folder


def check_configuration(
    configuration: Configuration, source: Path, namespace: str, deployed: Deployed
) -> None:
    """Refuses a configuration that does not fit the manifests.

    Args:
        configuration: the content of the file.
        source: the file, for errors.
        namespace: of the manager.
        deployed: its pods.

    Raises:
        ConfigError: the key is named.
    """
    expected = {
        "webhook.port": (configuration.webhook.port, WEBHOOK_PORT),
        "webhook.host": (configuration.webhook.host, ""),
        "metrics.bindAddress": (configuration.metrics.bind_address, f":{METRICS_PORT}"),
        "health.healthProbeBindAddress": (
            configuration.health.health_probe_bind_address,
            f":{HEALTH_PORT}",
        ),
        "health.livenessEndpointName": (configuration.health.liveness_endpoint_name, "/healthz"),
        "health.readinessEndpointName": (configuration.health.readiness_endpoint_name, "/readyz"),
        "namespace": (configuration.namespace or namespace, namespace),
    }
    for key, (actual, wanted) in expected.items():
        if actual != wanted:
            raise ConfigError(
                str(source),
                f"{key} is {actual!r}, but the manifests say {wanted!r}",
                "leave the key out",
            )
    if deployed.replicas > 1 and not configuration.leader_election.leader_elect:
        raise ConfigError(
            str(source),
            f"leaderElection.leaderElect is false with {deployed.replicas} replicas, which would "
            "all decide",
            "remove the key, or give --replicas 1",
        )


def _probe(path: str) -> Obj:
    return {"httpGet": {"path": path, "port": "health"}, "timeoutSeconds": 5}


def _metrics_service(namespace: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(METRICS_SERVICE, namespace),
        "spec": {
            "ports": [
                {
                    "name": "https",
                    "port": METRICS_PORT,
                    "protocol": "TCP",
                    "targetPort": "metrics",
                }
            ],
            "selector": dict(APP),
        },
    }


def _network_policy(namespace: str, ports: Iterable[int]) -> Obj:
    """Allows connections to the ports that the manager serves, and to no others."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _meta(NAME, namespace),
        "spec": {
            "podSelector": {"matchLabels": dict(APP)},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": port, "protocol": "TCP"} for port in ports]}],
        },
    }


def _disruption_budget(namespace: str) -> Obj:
    """Allows one pod at a time to be drained; a single replica does not block a drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _meta(NAME, namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": dict(APP)}},
    }


def _dashboards(namespace: str) -> Obj:
    meta = _meta(DASHBOARDS, namespace)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**meta, "labels": {**meta["labels"], **DASHBOARD_LABELS}},
        "data": {"kueuelib.json": dashboard_text()},
    }


def _service_monitor(namespace: str) -> Obj:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": _meta(MONITOR, namespace),
        "spec": {
            "endpoints": [
                {
                    "path": "/metrics",
                    "port": "https",
                    "scheme": "https",
                    "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                    "tlsConfig": {"insecureSkipVerify": True},
                }
            ],
            "selector": {"matchLabels": dict(APP)},
        },
    }


def _meta(name: str, namespace: str) -> Obj:
    return {"name": name, "namespace": namespace, "labels": dict(APP)}


def left_behind(deployment: Obj) -> tuple[str, str]:
    """What is wrong with the manager's Deployment if the webhooks lead elsewhere, and the command
    that removes it; both are empty if it has no pods.

    Args:
        deployment: the stored one.
    """
    pods = deployment["spec"].get("replicas", 1)
    if not pods:
        return "", ""
    problem = (
        f"it keeps {pods} pod{'' if pods == 1 else 's'} although the webhooks lead to a manager "
        "elsewhere; one of them may lead, with another configuration"
    )
    namespace = deployment["metadata"]["namespace"]
    return problem, f"kubectl -n {namespace} delete deployment {NAME}"
