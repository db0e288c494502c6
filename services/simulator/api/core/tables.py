"""Objects as rows of a Table: what `kubectl get` prints. Must not know HTTP; the time is given.

Source: k8s.io/kubernetes pkg/printers/internalversion and recordings A and B of kube-apiserver
1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from services.simulator.api.core import columns, kinds
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.store import Entry

Json = dict[str, Any]
Cells = Callable[[Json, datetime], list[Any]]

_NONE = "<none>"


def columns_of(kind: Kind) -> list[Json]:
    """Column definitions of a kind's Table."""
    return _LAYOUTS.get(kind.storage, (columns.CUSTOM if kind.custom else columns.PLAIN, _plain))[0]


def row(kind: Kind, entry: Entry, current_time: datetime, include: str) -> Json:
    """One row; `include` is Metadata (default), Object or None."""
    cells = _LAYOUTS.get(kind.storage, (columns.PLAIN, _plain))[1](entry.obj, current_time)
    return {"cells": cells, "object": _included(kind, entry, include)}


def _included(kind: Kind, entry: Entry, include: str) -> Json | None:
    if include == "None":
        return None
    if include == "Object":
        return {"kind": kind.kind, "apiVersion": kind.api_version, **entry.obj}
    return partial(entry)


def partial(entry: Entry) -> Json:
    """The object as PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": entry.obj["metadata"],
    }


def table(
    kind: Kind,
    entries: list[Entry],
    current_time: datetime,
    include: str,
    metadata: Json,
    *,
    headed: bool = True,
) -> Json:
    """Return a Table. In a watch only the first Table has column definitions."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns_of(kind) if headed else None,
        "rows": [row(kind, entry, current_time, include) for entry in entries],
    }


def duration(seconds: float) -> str:
    """Kubernetes' HumanDuration: two units at most, coarser with age."""
    total = int(seconds)
    if total < 0:
        return "0s" if total > -2 else "<invalid>"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    return _long(days)


def _two(first: int, unit: str, second: int, small: str) -> str:
    return f"{first}{unit}{second}{small}" if second else f"{first}{unit}"


def _long(days: int) -> str:
    years = days // 365
    if years < 2:
        return f"{days}d"
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def age(stamp: str | None, current_time: datetime) -> str:
    """The age of a timestamp, `<unknown>` when there is none."""
    moment = _moment(stamp)
    return "<unknown>" if moment is None else duration((current_time - moment).total_seconds())


def _moment(stamp: str | None) -> datetime | None:
    try:
        return datetime.strptime(str(stamp)[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _created(obj: Json, current_time: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), current_time)


def _plain(obj: Json, current_time: datetime) -> list[Any]:
    return [obj["metadata"]["name"], _created(obj, current_time)]


def _pod(pod: Json, current_time: datetime) -> list[Any]:
    spec, status = pod["spec"], pod["status"]
    statuses = status.get("containerStatuses") or []
    ready = sum(
        1 for item in statuses if item.get("ready") and "running" in (item.get("state") or {})
    )
    addresses = status.get("podIPs") or []
    address = addresses[0].get("ip") if addresses else status.get("podIP")
    return [
        pod["metadata"]["name"],
        f"{ready}/{len(spec.get('containers') or [])}",
        _pod_reason(pod, statuses),
        str(sum(item.get("restartCount", 0) for item in statuses)),
        _created(pod, current_time),
        address or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _gates(spec, status),
    ]


def _gates(spec: Json, status: Json) -> str:
    gates = spec.get("readinessGates") or []
    true = {item["type"] for item in status.get("conditions") or [] if item["status"] == "True"}
    return (
        f"{sum(1 for gate in gates if gate.get('conditionType') in true)}/{len(gates)}"
        if gates
        else _NONE
    )


def _pod_reason(pod: Json, statuses: list[Json]) -> str:
    """Return the STATUS column: the pod's reason or phase, or the state of its containers or
    deletion.
    """
    status = pod["status"]
    reason = status.get("reason") or status.get("phase") or "Unknown"
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    for item in reversed(statuses):
        reason = _container_reason(item.get("state") or {}) or reason
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else _terminating(status, reason)
    return reason


def _terminating(status: Json, reason: str) -> str:
    return reason if status.get("phase") in ("Succeeded", "Failed") else "Terminating"


def _container_reason(state: Json) -> str:
    waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
    if waiting.get("reason"):
        return str(waiting["reason"])
    if terminated:
        if terminated.get("reason"):
            return str(terminated["reason"])
        signal = terminated.get("signal")
        return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"
    return ""


def _node(node: Json, current_time: datetime) -> list[Any]:
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    ready = next((item for item in status.get("conditions") or [] if item["type"] == "Ready"), None)
    word = "Unknown"
    if ready is not None:
        word = "Ready" if ready["status"] == "True" else "NotReady"
    if (node.get("spec") or {}).get("unschedulable"):
        word += ",SchedulingDisabled"
    roles = sorted(
        key.partition("/")[2]
        for key in node["metadata"].get("labels") or {}
        if key.startswith("node-role.kubernetes.io/") and key.partition("/")[2]
    )
    kernel = (
        f"{info.get('kernelVersion') or '<unknown>'} ({info.get('architecture') or '<unknown>'})"
    )
    return [
        node["metadata"]["name"],
        word,
        ",".join(roles) or _NONE,
        _created(node, current_time),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _address(status: Json, kind: str) -> str:
    addresses = (item["address"] for item in status.get("addresses") or [] if item["type"] == kind)
    return next(addresses, _NONE)


def _event(event: Json, current_time: datetime) -> list[Any]:
    first, last, count = (
        event.get("firstTimestamp"),
        event.get("lastTimestamp"),
        event.get("count") or 0,
    )
    series = event.get("series") or {}
    moment = event.get("eventTime")
    first_seen = age(first or moment, current_time)
    last_seen = age(series.get("lastObservedTime") or last or moment, current_time)
    target = event.get("involvedObject") or {}
    kind = str(target.get("kind") or "").lower()
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or (
        event.get("reportingInstance") or "" if not source.get("component") else ""
    )
    return [
        last_seen,
        event.get("type") or "",
        event.get("reason") or "",
        f"{kind}/{target.get('name', '')}" if kind else target.get("name", ""),
        target.get("fieldPath") or "",
        f"{component}, {host}" if host else component,
        str(event.get("message") or "").strip(),
        first_seen,
        series.get("count") or count or 1,
        event["metadata"]["name"],
    ]


def _namespace(namespace: Json, current_time: datetime) -> list[Any]:
    return [
        namespace["metadata"]["name"],
        (namespace.get("status") or {}).get("phase", ""),
        _created(namespace, current_time),
    ]


def _lease(lease: Json, current_time: datetime) -> list[Any]:
    return [
        lease["metadata"]["name"],
        (lease.get("spec") or {}).get("holderIdentity") or "",
        _created(lease, current_time),
    ]


def _budget(budget: Json, current_time: datetime) -> list[Any]:
    spec = budget.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    allowed = (budget.get("status") or {}).get("disruptionsAllowed", 0)
    texts = ["N/A" if value is None else str(value) for value in (least, most)]
    return [budget["metadata"]["name"], *texts, allowed, _created(budget, current_time)]


def _config_map(obj: Json, current_time: datetime) -> list[Any]:
    return [
        obj["metadata"]["name"],
        len(obj.get("data") or {}) + len(obj.get("binaryData") or {}),
        _created(obj, current_time),
    ]


def _priority(obj: Json, current_time: datetime) -> list[Any]:
    return [
        obj["metadata"]["name"],
        obj.get("value", 0),
        bool(obj.get("globalDefault")),
        _created(obj, current_time),
    ]


def _asked(obj: Json, *names: str) -> list[int]:
    """Return the requested count, and the status' counts by name."""
    status = obj.get("status") or {}
    return [(obj.get("spec") or {}).get("replicas", 1), *(status.get(name, 0) for name in names)]


def _deployment(obj: Json, current_time: datetime) -> list[Any]:
    wanted, ready, updated, available = _asked(
        obj, "readyReplicas", "updatedReplicas", "availableReplicas"
    )
    return [
        obj["metadata"]["name"],
        f"{ready}/{wanted}",
        str(updated),
        str(available),
        _created(obj, current_time),
    ]


def _replica_set(obj: Json, current_time: datetime) -> list[Any]:
    return [
        obj["metadata"]["name"],
        *_asked(obj, "replicas", "readyReplicas"),
        _created(obj, current_time),
    ]


def _stateful_set(obj: Json, current_time: datetime) -> list[Any]:
    wanted, ready = _asked(obj, "readyReplicas")
    return [obj["metadata"]["name"], f"{ready}/{wanted}", _created(obj, current_time)]


def _job(obj: Json, current_time: datetime) -> list[Any]:
    status, wanted = obj.get("status") or {}, (obj.get("spec") or {}).get("completions", 1)
    ended = next(
        (
            condition["type"]
            for condition in status.get("conditions") or []
            if condition.get("status") == "True"
        ),
        "Running",
    )
    return [
        obj["metadata"]["name"],
        ended,
        f"{status.get('succeeded', 0)}/{wanted}",
        _created(obj, current_time),
        _created(obj, current_time),
    ]


def _volume(obj: Json, current_time: datetime) -> list[Any]:
    spec, claim = obj.get("spec") or {}, (obj.get("spec") or {}).get("claimRef") or {}
    of = (
        f"{claim.get('namespace', '')}/{claim.get('name', '')}"
        if claim
        else spec.get("volumeName", "")
    )
    return [
        obj["metadata"]["name"],
        (obj.get("status") or {}).get("phase", ""),
        of,
        _created(obj, current_time),
    ]


def _csi_node(obj: Json, current_time: datetime) -> list[Any]:
    return [
        obj["metadata"]["name"],
        len((obj.get("spec") or {}).get("drivers") or []),
        _created(obj, current_time),
    ]


def _runtime(obj: Json, current_time: datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj.get("handler", ""), _created(obj, current_time)]


_LAYOUTS: dict[str, tuple[list[Json], Cells]] = {
    kinds.PODS.storage: (columns.PODS, _pod),
    kinds.NODES.storage: (columns.NODES, _node),
    kinds.EVENTS.storage: (columns.EVENTS, _event),
    kinds.NAMESPACES.storage: (columns.NAMESPACES, _namespace),
    kinds.LEASES.storage: (columns.LEASES, _lease),
    kinds.BUDGETS.storage: (columns.BUDGETS, _budget),
    kinds.TOPOLOGIES.storage: (columns.CUSTOM, _plain),
    kinds.DEVICES.storage: (columns.CUSTOM, _plain),
    kinds.RESERVATIONS.storage: (columns.CUSTOM, _plain),
    kinds.CONFIG_MAPS.storage: (columns.CONFIG_MAPS, _config_map),
    kinds.PRIORITIES.storage: (columns.PRIORITIES, _priority),
    kinds.VOLUMES.storage: (columns.VOLUMES, _volume),
    kinds.CLAIMS.storage: (columns.CLAIMS, _volume),
    kinds.CSI_NODES.storage: (columns.CSI_NODES, _csi_node),
    kinds.RUNTIMES.storage: (columns.RUNTIMES, _runtime),
    kinds.DEPLOYMENTS.storage: (columns.DEPLOYMENTS, _deployment),
    kinds.REPLICA_SETS.storage: (columns.REPLICA_SETS, _replica_set),
    kinds.STATEFUL_SETS.storage: (columns.STATEFUL_SETS, _stateful_set),
    kinds.JOBS.storage: (columns.JOBS, _job),
}
