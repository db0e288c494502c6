"""A pod as the managers of a kubelet see it: with or without its pod-level resources (KEP-2837)."""

from __future__ import annotations

import msgspec

from shared.domain import qos
from shared.domain.pod import Pod
from shared.domain.pod_level import as_managed
from shared.kubelet.config import KubeletConfig


def seen_pod(pod: Pod, config: KubeletConfig, scope: str) -> Pod:
    """Return the pod that the managers of this kubelet see. `scope` is the Topology Manager's.

    To 1.33 they do not know pod-level resources, so that containers of a Guaranteed pod get
    exclusive CPUs and memory. From 1.29 the API server's QoS class counts, before that the class
    that follows from the containers.
    """
    rules = config.rules
    if config.pod_level_managers:
        return as_managed(pod, scope)
    if pod.pod_level is None or rules.pod_level == "skipped":
        return pod
    pod_qos = pod.qos if rules.pod_level == "QoS only" else qos.of_containers(pod.containers)
    return msgspec.structs.replace(pod, pod_level=None, qos=pod_qos)
