"""Column definitions of Tables, as kubectl prints them. Must not know objects.

Texts are shortened from the Kubernetes API documentation; names, types, formats and priorities are
kube-apiserver 1.36's.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_NAME = "Name must be unique within a namespace."
_AGE = "CreationTimestamp is a timestamp representing the server time when this object was created."


def _column(
    name: str, description: str, kind: str = "string", form: str = "", priority: int = 0
) -> Json:
    return {
        "name": name,
        "type": kind,
        "format": form,
        "description": description,
        "priority": priority,
    }


NAME = _column("Name", _NAME, form="name")
AGE = _column("Age", _AGE)

PODS = [
    NAME,
    _column("Ready", "The aggregate readiness state of this pod for accepting traffic."),
    _column("Status", "The aggregate status of the containers in this pod."),
    _column("Restarts", "The number of times the containers in this pod have been restarted."),
    AGE,
    _column("IP", "podIP address allocated to the pod.", priority=1),
    _column("Node", "NodeName indicates in which node this pod is scheduled.", priority=1),
    _column(
        "Nominated Node",
        "nominatedNodeName is set only when this pod preempts other pods on the node.",
        priority=1,
    ),
    _column(
        "Readiness Gates",
        "If specified, all readiness gates will be evaluated for pod readiness.",
        priority=1,
    ),
]
NODES = [
    NAME,
    _column("Status", "The status of the node"),
    _column("Roles", "The roles of the node"),
    AGE,
    _column("Version", "Kubelet Version reported by the node."),
    _column("Internal-IP", "List of addresses reachable to the node.", priority=1),
    _column("External-IP", "List of addresses reachable to the node.", priority=1),
    _column("OS-Image", "OS Image reported by the node from /etc/os-release.", priority=1),
    _column("Kernel-Version", "Kernel Version reported by the node from 'uname -r'.", priority=1),
    _column(
        "Container-Runtime",
        "ContainerRuntime Version reported by the node through runtime remote API.",
        priority=1,
    ),
]
EVENTS = [
    _column(
        "Last Seen", "The time at which the most recent occurrence of this event was recorded."
    ),
    _column("Type", "Type of this event (Normal, Warning), new types could be added in the future"),
    _column(
        "Reason",
        (
            "This should be a short, machine understandable string that gives the reason for "
            "the transition."
        ),
    ),
    _column("Object", "The object that this event is about."),
    _column("Subobject", "If referring to a piece of an object, its field path.", priority=1),
    _column("Source", "The component reporting this event.", priority=1),
    _column("Message", "A human-readable description of the status of this operation."),
    _column("First Seen", "The time at which the event was first recorded.", priority=1),
    _column("Count", "The number of times this event has occurred.", priority=1),
    _column("Name", _NAME, form="name", priority=1),
]
NAMESPACES = [NAME, _column("Status", "The status of the namespace"), AGE]
LEASES = [
    NAME,
    _column("Holder", "holderIdentity contains the identity of the holder of a current lease."),
    AGE,
]
CUSTOM = [NAME, _column("Age", _AGE, "date")]
BUDGETS = [
    NAME,
    _column("Min Available", "The minimum number of pods that must be available."),
    _column("Max Unavailable", "The maximum number of pods that may be unavailable."),
    _column(
        "Allowed Disruptions",
        "Calculated number of pods that may be disrupted at this time.",
        "integer",
    ),
    AGE,
]
PLAIN = [NAME, AGE]
CONFIG_MAPS = [NAME, _column("Data", "Data contains the configuration data.", "integer"), AGE]
PRIORITIES = [
    NAME,
    _column("Value", "value represents the integer value of this priority class.", "integer"),
    _column(
        "Global-Default",
        "globalDefault specifies whether this is the default priority class.",
        "boolean",
    ),
    AGE,
]
VOLUMES = [
    NAME,
    _column(
        "Status",
        "phase indicates if a volume is available, bound to a claim, or released by a claim.",
    ),
    _column(
        "Claim",
        (
            "claimRef is part of a bi-directional binding between PersistentVolume and "
            "PersistentVolumeClaim."
        ),
    ),
    AGE,
]
CLAIMS = [
    NAME,
    _column("Status", "phase represents the current phase of PersistentVolumeClaim."),
    _column(
        "Volume", "volumeName is the binding reference to the PersistentVolume backing this claim."
    ),
    AGE,
]
CSI_NODES = [
    NAME,
    _column(
        "Drivers",
        "drivers is a list of information of all CSI Drivers existing on a node.",
        "integer",
    ),
    AGE,
]
RUNTIMES = [
    NAME,
    _column(
        "Handler",
        "handler specifies the underlying runtime and configuration of pods of this class.",
    ),
    AGE,
]
DEPLOYMENTS = [
    NAME,
    _column("Ready", "Number of the pod with ready state"),
    _column(
        "Up-to-date", "Total number of non-terminated pods that have the desired template spec."
    ),
    _column("Available", "Total number of available pods"),
    AGE,
]
REPLICA_SETS = [
    NAME,
    _column("Desired", "Number of desired pods.", "integer"),
    _column("Current", "Number of pods that exist.", "integer"),
    _column("Ready", "Number of pods that are ready.", "integer"),
    AGE,
]
STATEFUL_SETS = [NAME, _column("Ready", "Number of the pod with ready state"), AGE]
JOBS = [
    NAME,
    _column("Status", "Status of the job."),
    _column("Completions", "Pods that have succeeded, of those wanted."),
    _column("Duration", "Time since the job began."),
    AGE,
]
