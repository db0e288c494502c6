"""Short ways to write pods, zones and objects for compat tests, as the JSON that an API client
would send.
"""

from __future__ import annotations

from typing import Any

from plugins.upstream_compat.nrt import FINGERPRINT_ATTRIBUTE, METHOD_ATTRIBUTE, Nrt, parse_nrt
from plugins.upstream_compat.pod import Pod, parse_pod
from shared.kubelet.fingerprint import fingerprint

SINGLE, RESTRICTED = "single-numa-node", "restricted"


def container(name: str = "c0", equal: bool = True, **amounts: str) -> dict[str, Any]:
    """A container with requests, and equal limits by default; `_` in a name means `-`."""
    named = {
        key.replace("_", "-").replace("DEVICE", "vendor.example/gpu"): amount
        for key, amount in amounts.items()
    }
    return {"name": name, "resources": {"requests": named, **({"limits": named} if equal else {})}}


def pod(
    name: str = "p",
    *containers: dict[str, Any],
    inits: tuple[dict[str, Any], ...] = (),
    **spec: Any,
) -> Pod:
    """A pod in namespace `ns`; `phase`, `node` and `scheduler` are taken out of `spec`."""
    raw = {
        "metadata": {"name": name, "namespace": "ns", "uid": spec.pop("uid", f"uid-{name}")},
        "status": {"phase": spec.pop("phase", "Pending")},
        "spec": {
            "nodeName": spec.pop("node", ""),
            "schedulerName": spec.pop("scheduler", "topo"),
            "containers": list(containers),
            "initContainers": list(inits),
            **spec,
        },
    }
    return parse_pod(raw)


def guaranteed(name: str = "p", cpu: str = "4", memory: str = "1Gi", **spec: Any) -> Pod:
    """A Guaranteed pod of one container."""
    return pod(name, container(cpu=cpu, memory=memory), **spec)


def zone(
    zone_id: int, costs: dict[int, int] | None = None, kind: str = "Node", **available: str
) -> dict[str, Any]:
    """A zone `node-<id>` with these amounts available (and allocatable)."""
    named = {
        key.replace("_", "-").replace("DEVICE", "vendor.example/gpu"): amount
        for key, amount in available.items()
    }
    return {
        "name": f"node-{zone_id}",
        "type": kind,
        "costs": [{"name": f"node-{to}", "value": value} for to, value in (costs or {}).items()],
        "resources": [
            {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
            for name, amount in named.items()
        ],
    }


def nrt(
    *zones: dict[str, Any],
    name: str = "n1",
    policy: str = SINGLE,
    scope: str = "container",
    **more: str,
) -> Nrt:
    """An object with attributes; `more` are further attributes by name."""
    attributes = {"topologyManagerPolicy": policy, "topologyManagerScope": scope, **more}
    return parse_nrt(
        {
            "metadata": {"name": name},
            "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
            "zones": list(zones),
        }
    )


def reported(
    *zones: dict[str, Any], pods: tuple[Pod, ...] = (), method: str = "all", **more: Any
) -> Nrt:
    """An object whose fingerprint says that exactly these pods are on the node."""
    computed = fingerprint((each.namespace, each.name) for each in pods)
    return nrt(*zones, **{FINGERPRINT_ATTRIBUTE: computed, METHOD_ATTRIBUTE: method}, **more)


def two_zones(
    cpu: str = "8", memory: str = "16Gi", **more: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two equal zones."""
    return zone(0, None, "Node", cpu=cpu, memory=memory, **more), zone(
        1, None, "Node", cpu=cpu, memory=memory, **more
    )
