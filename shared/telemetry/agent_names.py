"""Metrics and log events of the agent (see `names`)."""

from __future__ import annotations

from shared.telemetry.declare import counter, event, gauge, seconds

REGISTERED = gauge(
    "topolog_agent_registered", "1 while the agent is registered with the container runtime."
)
STOOD_BACK = gauge(
    "topolog_agent_stood_back",
    "1 while the agent does nothing, because another component sets CPUs on this node.",
)
CONNECTIONS = counter(
    "topolog_agent_connections",
    "Connections to the runtime by result: registered, failed.",
    "result",
)
REQUEST_LATENCY = seconds(
    "topolog_agent_request_latency", "Duration of the answer to a request of the runtime.", "method"
)
REFUSED = counter(
    "topolog_agent_refused",
    "Annotations that the agent could not keep, by reason and what followed: refused (the "
    "container was not created), or ignored (it runs on the CPUs of pods without zones).",
    "reason",
    "result",
)
UPDATES = counter(
    "topolog_agent_updates", "Containers whose CPUs or memory zones were changed while they run."
)
DRIFTED = counter(
    "topolog_agent_drifted", "Containers found with other CPUs or memory zones; they were repaired."
)
CONTAINERS = gauge(
    "topolog_agent_containers", "Containers by their CPUs: own, shared, any.", "cpus"
)

AGENT_REGISTERED = event("agent.registered", "The agent sets the CPUs of containers from now on.")
AGENT_DISCONNECTED = event(
    "agent.disconnected",
    "The container runtime does not answer; the agent tries again.",
    "Enable NRI in the runtime, and mount its socket's folder; see docs/agent.md.",
)
AGENT_STOOD_BACK = event(
    "agent.stood_back",
    "Another component sets CPUs on this node, so the agent does nothing.",
    "Remove that component, or the agent from this node.",
)
ANNOTATION_REFUSED = event(
    "agent.annotation_refused",
    "The zones or CPUs in a pod's annotation cannot be kept on this node.",
    "Delete the pod. If it recurs, compare TOPOLOG_RESERVED_CPUS with the kubelet's "
    "reservedSystemCPUs, and remove other schedulers that place by annotation.",
)
CONTAINERS_DRIFTED = event(
    "agent.containers_drifted",
    "Containers had other CPUs or memory zones than the agent set; they are set again.",
    "If it recurs, find what else writes cpusets on the node.",
)
UPDATE_FAILED = event(
    "agent.update_failed",
    "The runtime could not change the CPUs of running containers; the agent tries again.",
    "See the log of the container runtime.",
)
