"""How many exclusive CPUs containers and pods request. This module does not know machines.

Source: kubelet 1.36, cm/cpumanager/policy_static.go, guaranteedCPUs and podGuaranteedCPUs.
"""

from __future__ import annotations

from shared.domain.pod import Container, Pod
from shared.domain.resources import CPU


def exclusive_cpus(pod: Pod, container: Container) -> int:
    """Return how many exclusive CPUs a container gets: the whole-number request of a Guaranteed
    pod, else 0.
    """
    if pod.qos != "Guaranteed" or pod.pod_level:
        return 0
    whole, fraction = divmod(container.requests.get(CPU, 0), 1000)
    return 0 if fraction else whole


def pod_exclusive_cpus(pod: Pod) -> int:
    """Return the pod-scope request: the larger of the long-running sum and the init containers'
    peak (KEP-753).
    """
    sidecars = apps = peak = 0
    for container in pod.containers:
        count = exclusive_cpus(pod, container)
        if container.kind == "sidecar":
            sidecars += count
        elif container.kind == "init":
            peak = max(peak, sidecars + count)
        else:
            apps += count
    return max(peak, apps + sidecars)
