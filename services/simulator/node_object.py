"""The Node object of a simulated node, as its kubelet registers it, and its Device object. Pure.
Must not know the API server.
"""

from __future__ import annotations

from typing import Any

from services.simulator.cluster import GPU, SimulatedNode
from shared.domain.quantity import format_amount
from shared.domain.resources import Amounts
from shared.kubelet.masks import nodes_of

Json = dict[str, Any]
KUBELET_VERSION = "v1.36.2"
_CONDITIONS = (
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def node_object(node: SimulatedNode, boot_id: str, address: str, timestamp: str) -> Json:
    """Return the whole object with its status."""
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        **node.labels,
    }
    metadata = {"name": node.name, "labels": labels}
    return {
        "metadata": metadata,
        "spec": {},
        "status": node_status(node, boot_id, address, timestamp),
    }


def node_status(node: SimulatedNode, boot_id: str, address: str, timestamp: str) -> Json:
    """Return the status that a kubelet posts."""
    return {
        "addresses": [
            {"address": address, "type": "InternalIP"},
            {"address": node.name, "type": "Hostname"},
        ],
        "allocatable": _amounts(node.allocatable()),
        "capacity": _amounts(node.capacity()),
        "conditions": [
            {
                "type": name,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": timestamp,
                "lastTransitionTime": timestamp,
            }
            for name, status, reason, message in _CONDITIONS
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": _info(node.name, boot_id),
    }


def device_object(node: SimulatedNode) -> Json:
    """Return the Device object of the node's GPUs, as koordlet writes it: two on each switch."""
    gpus = [
        {
            "type": "gpu",
            "minor": minor,
            "id": name,
            "health": device.healthy,
            "resources": {
                "koordinator.sh/gpu-core": "100",
                "koordinator.sh/gpu-memory": "80Gi",
                "koordinator.sh/gpu-memory-ratio": "100",
            },
            "topology": {
                "socketID": -1,
                "nodeID": nodes_of(device.mask or 0)[0],
                "pcieID": str(minor // 2),
            },
        }
        for minor, (name, device) in enumerate(sorted(node.devices.get(GPU, {}).items()))
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": node.name},
        "spec": {"devices": gpus},
    }


def _amounts(amounts: Amounts) -> Json:
    return {name: format_amount(name, amounts[name]) for name in sorted(amounts)}


def _info(name: str, boot_id: str) -> Json:
    return {
        "architecture": "amd64",
        "bootID": boot_id,
        "containerRuntimeVersion": "simulated://1",
        "kernelVersion": "6.1.0",
        "kubeProxyVersion": "",
        "kubeletVersion": KUBELET_VERSION,
        "machineID": name,
        "operatingSystem": "linux",
        "osImage": "Topolog simulated node",
        "systemUUID": name,
    }
