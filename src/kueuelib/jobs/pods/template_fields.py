"""The fields that a pod spec and a container have, for reading templates strictly."""

from __future__ import annotations

from typing import Final

POD_SPEC_FIELDS: Final = frozenset(
    {
        *("activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers"),
        *("dnsConfig", "dnsPolicy", "enableServiceLinks", "ephemeralContainers", "hostAliases"),
        *("hostIPC", "hostNetwork", "hostPID", "hostUsers", "hostname", "hostnameOverride"),
        *("imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os", "overhead"),
        *("preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims"),
        *("resources", "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates"),
        *("securityContext", "serviceAccount", "serviceAccountName", "setHostnameAsFQDN"),
        *("shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds", "tolerations"),
        *("topologySpreadConstraints", "volumes"),
    }
)

CONTAINER_FIELDS: Final = frozenset(
    {
        *("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle"),
        *("livenessProbe", "name", "ports", "readinessProbe", "resizePolicy", "resources"),
        *("restartPolicy", "restartPolicyRules", "securityContext", "startupProbe", "stdin"),
        *("stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty"),
        *("volumeDevices", "volumeMounts", "workingDir"),
    }
)
