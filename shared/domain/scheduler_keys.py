"""Annotations, labels and resources that other schedulers read, and what Topolog does with each.

Theory, for a newcomer who adds a key:

1. A pod that comes from Koordinator, Volcano, KAI or Katalyst still has their keys. Each key that
   says where a pod may run, or how it is placed, has one row in `KEYS`.
2. `asks` reads the key's value and returns what it asks for. Nothing, if the value changes nothing:
   a gang of one pod, say. A value that cannot be read may ask for anything, so it asks for another
   scheduler.
3. The answer decides the treatment (`TREATMENTS`). A requirement is kept, or the pod waits with
   an event that names the key and the row's `remedy`. A preference has no effect, and a condition
   of the pod says so.
4. The filter (`services/scheduler/filter/constraints/scheduler_keys.py`), the condition
   (`services/binder`), `topolog doctor` and the table in docs/constraints.md all use these rows.

Sources: koordinator a7a1b76b (apis/extension), volcano-sh/apis 536f121 (labels.go), katalyst-api
1869da5 (pkg/consts/qos.go), KAI-Scheduler d5bc503a (pkg/common/constants, podgrouper constants),
scheduler-plugins 903da7df (coscheduling). This module does not know nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from shared.domain import gang
from shared.domain.pod import Pod

Place = Literal["pod annotation", "pod label", "node label", "resource"]
Ask = Literal[
    "zones",
    "exclusive CPUs",
    "full cores",
    "memory zones",
    "device",
    "gang",
    "scheduler",
    "preference",
]
Words = Mapping[str, str]
Asks = Callable[[str, Words], tuple[Ask, ...]]

KOORDINATOR, VOLCANO, KAI, KATALYST = "Koordinator", "Volcano", "KAI-Scheduler", "Katalyst"
COSCHEDULING, CRANE = "coscheduling plugin", "Crane"

KEPT_OR_WAITS, WAITS, NO_EFFECT = "kept or waits", "waits", "no effect"
TREATMENTS: dict[Ask, str] = {
    "zones": KEPT_OR_WAITS,
    "exclusive CPUs": KEPT_OR_WAITS,
    "full cores": KEPT_OR_WAITS,
    "memory zones": KEPT_OR_WAITS,
    "device": KEPT_OR_WAITS,
    "gang": KEPT_OR_WAITS,
    "scheduler": WAITS,
    "preference": NO_EFFECT,
}
# A longer value is not stored, and counts as unreadable.
LONGEST_VALUE = 2048

# The part of Koordinator's topology policy that only prefers; a row of its own.
PREFERS_EXCLUSIVE = "scheduling.koordinator.sh/numa-topology-spec: singleNUMANodeExclusive"

_ELSEWHERE: tuple[Ask, ...] = ("scheduler",)
_TOGETHER: tuple[Ask, ...] = ("gang",)
_PREFERRED: tuple[Ask, ...] = ("preference",)
_DEVICE: tuple[Ask, ...] = ("device",)
_NOTHING: tuple[Ask, ...] = ()


class SchedulerKey(NamedTuple):
    """One key. A `key` that ends with `*` is a prefix. `asks` gets the value and all annotations
    and labels of the same object. `remedy` says what would keep the key, or replace it.
    """

    key: str
    place: Place
    reader: str
    meaning: str
    treated: tuple[Ask, ...]
    asks: Asks
    remedy: str

    def matches(self, name: str) -> bool:
        """Return whether this row is about a name."""
        return name.startswith(self.key[:-1]) if self.key.endswith("*") else name == self.key

    @property
    def shown(self) -> str:
        """How messages name the key."""
        return f"{self.place} {self.key} ({self.reader})"


# -- what values ask for


def _always(*asks: Ask) -> Asks:
    return lambda value, _: asks if value.strip() else _NOTHING


def _unless(nothing: tuple[str, ...], asks: tuple[Ask, ...]) -> Asks:
    """Any value asks, apart from these."""
    lowered = {text.lower() for text in nothing}
    return lambda value, _: asks if value.strip().lower() not in {"", *lowered} else _NOTHING


def _if(values: Mapping[str, tuple[Ask, ...]]) -> Asks:
    """Only these values ask, because the others are defined and restrict nothing."""
    return lambda value, _: values.get(value.strip(), _NOTHING)


def _size(*keys: str, asking: tuple[Ask, ...] = _TOGETHER) -> Asks:
    """A gang asks unless one of these keys says that it has one member."""

    def asks(value: str, words: Words) -> tuple[Ask, ...]:
        if not value.strip() or any(_is_one(words.get(key, "")) for key in keys):
            return _NOTHING
        return asking

    return asks


def _is_one(number: str) -> bool:
    return number.strip() in ("0", "1")


def _json(read: Callable[[dict[str, Any]], tuple[Ask, ...]]) -> Asks:
    """A JSON object."""

    def asks(value: str, _: Words) -> tuple[Ask, ...]:
        if not value.strip():
            return _NOTHING
        try:
            return read(msgspec.json.decode(value, type=dict[str, Any]))
        except (msgspec.MsgspecError, RecursionError):
            return _ELSEWHERE

    return asks


def _gang_groups(value: str, words: Words) -> tuple[Ask, ...]:
    try:
        groups = msgspec.json.decode(value, type=list[str])
    except (msgspec.MsgspecError, RecursionError):
        return _ELSEWHERE if value.strip() else _NOTHING
    return _ELSEWHERE if len(groups) > 1 else _NOTHING


def _resource_spec(spec: dict[str, Any]) -> tuple[Ask, ...]:
    required = spec.get("requiredCPUBindPolicy") or "Default"
    asks: tuple[Ask, ...] = {"Default": _NOTHING, "FullPCPUs": ("full cores",)}.get(
        required if isinstance(required, str) else "", _ELSEWHERE
    )
    bind = spec.get("preferredCPUBindPolicy") or "Default"
    exclusive = spec.get("preferredCPUExclusivePolicy") or "None"
    prefers = bind not in ("Default", required) or exclusive != "None"
    return (*asks, *(_PREFERRED if prefers else _NOTHING))


def _joint(spec: dict[str, Any]) -> tuple[Ask, ...]:
    if spec.get("requiredScope"):
        return _DEVICE
    return _PREFERRED if len(spec.get("deviceTypes") or ()) > 1 else _NOTHING


def _partition(spec: dict[str, Any]) -> tuple[Ask, ...]:
    restricted = spec.get("allocatePolicy") not in (None, "", "BestEffort")
    return _DEVICE if restricted or spec.get("ringBusBandwidth") else _PREFERRED


def _gather(spec: dict[str, Any]) -> tuple[Ask, ...]:
    rules = [rule for rule in spec.get("gatherStrategy") or () if isinstance(rule, dict)]
    if any(rule.get("strategy") != gang.PREFER_GATHER for rule in rules):
        return _TOGETHER
    return _PREFERRED if rules else _NOTHING


def _device_hint(spec: dict[str, Any]) -> tuple[Ask, ...]:
    return _DEVICE if any(spec.values()) else _NOTHING


def _any_entry(spec: dict[str, Any]) -> tuple[Ask, ...]:
    return _ELSEWHERE if any(spec.values()) else _NOTHING


def _flags(**asking: str) -> Callable[[dict[str, Any]], tuple[Ask, ...]]:
    """Katalyst's enhancements: these entries ask if they have this value ("*": any)."""

    def read(spec: dict[str, Any]) -> tuple[Ask, ...]:
        for name, wanted in asking.items():
            value = spec.get(name, spec.get(f"katalyst.kubewharf.io/{name}"))
            if value not in (None, "") and wanted in ("*", str(value).lower()):
                return _ELSEWHERE
        return _NOTHING

    return read


# -- the rows

_GANG = "a gang: no member runs before enough of them can"
_GANG_KEPT = (
    "name the gang and its minimum of pods by the keys of one scheduler, or by a PodGroup object"
)
_NO_GANG = "Topolog does not read these keys; let {} place the gang, or remove the key"
_EXCLUSIVE = (
    "give each container whole CPUs with requests equal to limits, and use nodes with "
    "cpuManagerPolicy static"
)
_QUEUE = "Topolog has no queues; use ResourceQuota or Kueue"
_ONE_ZONE = (
    "use nodes with that topologyManagerPolicy; SingleNUMANode also passes where the kubelet is "
    "certain to put the pod into one zone, and BestEffort requires nothing"
)
_DEVICES = (
    "the kubelet chooses devices; use nodes with a Device object whose zones Topolog chooses "
    "(docs/owned-zones.md), let koord-scheduler place the pod, or remove the key"
)
_OWNED = "or let Topolog choose zones there (docs/owned-zones.md)"
_RACKS = "use pod affinity by a node label, or remove the key"
_AGENT = "only Katalyst's agent does this; let Katalyst place the pod, or remove the key"


def _gang_row(key: str, place: Place, reader: str, minimum_key: str = "") -> SchedulerKey:
    return SchedulerKey(key, place, reader, _GANG, _TOGETHER, _size(minimum_key), _GANG_KEPT)


def _other_gang(key: str, place: Place, reader: str, asks: Asks) -> SchedulerKey:
    remedy = _NO_GANG.format("koord-scheduler" if reader == KOORDINATOR else reader)
    return SchedulerKey(key, place, reader, _GANG, _ELSEWHERE, asks, remedy)


_QUEUES: tuple[tuple[str, Place, str], ...] = (
    ("quota.scheduling.koordinator.sh/name", "pod label", KOORDINATOR),
    ("scheduling.volcano.sh/queue-name", "pod annotation", VOLCANO),
    ("volcano.sh/queue-name", "pod annotation", VOLCANO),
    ("kai.scheduler/queue", "pod label", KAI),
)

_EVICTION = "Topolog evicts by priority alone; use a PriorityClass or a PodDisruptionBudget"
_EVICTIONS: tuple[tuple[str, Place, str, Asks], ...] = (
    ("kai.scheduler/preemptibility", "pod label", "whether the pod may be evicted",
     _unless(("preemptible",), _PREFERRED)),
    ("kai.scheduler/preemption-delay", "pod annotation", "how long the pod is not evicted",
     _always("preference")),
    ("kai.scheduler/staleness-grace-period", "pod annotation",
     "when a gang that lost members is evicted", _always("preference")),
    ("kai.scheduler/task-priority", "pod label", "which pods of a gang are placed first",
     _always("preference")),
)  # fmt: skip

KEYS: tuple[SchedulerKey, ...] = (
    # Alignment. `services/scheduler/snapshot/topology_policy.py` reads these.
    SchedulerKey(
        "scheduling.koordinator.sh/numa-topology-spec", "pod annotation", KOORDINATOR,
        "the pod's own topology policy", ("zones", "preference"), _always("zones"), _ONE_ZONE,
    ),
    SchedulerKey(
        PREFERS_EXCLUSIVE, "pod annotation", KOORDINATOR,
        "Preferred: zones apart from pods over several zones", _PREFERRED, _always("preference"),
        "the kubelet chooses zones without regard to it; use nodes with topologyManagerPolicy "
        "single-numa-node, where no pod is over several zones",
    ),
    SchedulerKey(
        "volcano.sh/numa-topology-policy", "pod annotation", VOLCANO,
        "`topologyPolicy` of a task: the topology policy of each container",
        ("zones", "preference"),
        _unless(("none",), ("zones",)), _ONE_ZONE,
    ),
    SchedulerKey(
        "node.koordinator.sh/numa-topology-policy", "node label", KOORDINATOR,
        "the node's topology policy", ("zones",), _unless(("none",), ("zones",)),
        "give the node's kubelet this topologyManagerPolicy, " + _OWNED,
    ),
    SchedulerKey(
        "node.koordinator.sh/numa-memory-policy", "node label", KOORDINATOR,
        "memory is allocated by zone", ("memory zones",), _unless(("none",), ("memory zones",)),
        "give the node's kubelet memoryManagerPolicy Static, " + _OWNED,
    ),
    SchedulerKey(
        "node.koordinator.sh/cpu-bind-policy", "node label", KOORDINATOR,
        "how CPUs of the node's pods are bound", ("full cores", "scheduler"),
        lambda value, _: {
            "": _NOTHING, "None": _NOTHING, "FullPCPUsOnly": ("full cores",),
        }.get(value, _ELSEWHERE),
        "give the node's kubelet the CPU Manager option full-pcpus-only (for FullPCPUsOnly), "
        + _OWNED,
    ),
    SchedulerKey(
        "node.koordinator.sh/numa-allocate-strategy", "node label", KOORDINATOR,
        "which zones of the node are used first", _PREFERRED, _always("preference"),
        "let Topolog choose the zones of the node, or set the strategy KoordinatorMostAllocated or "
        "KoordinatorLeastAllocated, under which MostAllocated and LeastAllocated rank nodes",
    ),
    # CPUs.
    SchedulerKey(
        "koordinator.sh/qosClass", "pod label", KOORDINATOR, "LSE and LSR: exclusive CPUs",
        ("exclusive CPUs",), _if({"LSE": ("exclusive CPUs",), "LSR": ("exclusive CPUs",)}),
        _EXCLUSIVE,
    ),
    SchedulerKey(
        "scheduling.koordinator.sh/resource-spec", "pod annotation", KOORDINATOR,
        "how CPUs are bound: FullPCPUs, SpreadByPCPUs", ("full cores", "scheduler", "preference"),
        _json(_resource_spec),
        "for FullPCPUs, use nodes with the CPU Manager option full-pcpus-only, and request whole "
        "CPUs with requests equal to limits; no kubelet keeps SpreadByPCPUs",
    ),
    SchedulerKey(
        "katalyst.kubewharf.io/qos_level", "pod annotation", KATALYST,
        "dedicated_cores: exclusive CPUs", ("exclusive CPUs",),
        _if({"dedicated_cores": ("exclusive CPUs",)}), _EXCLUSIVE,
    ),
    SchedulerKey(
        "topology.crane.io/cpu-policy", "pod annotation", CRANE, "how CPUs are bound",
        ("exclusive CPUs", "scheduler"),
        lambda value, _: {
            "": _NOTHING, "none": _NOTHING, "exclusive": ("exclusive CPUs",),
        }.get(value, _ELSEWHERE),
        f"for exclusive, {_EXCLUSIVE}; otherwise let Crane place the pod, or remove the key",
    ),
    # Gangs. `shared/domain/gang.py` reads the first ones.
    _gang_row(gang.KOORDINATOR_NAME, "pod annotation", KOORDINATOR, gang.KOORDINATOR_MIN),
    _gang_row(gang.KOORDINATOR_MIN, "pod annotation", KOORDINATOR, gang.KOORDINATOR_MIN),
    *(_gang_row(key, "pod label", COSCHEDULING) for key in gang.OBJECT_LABELS),
    _gang_row(gang.LIGHT_NAME, "pod label", COSCHEDULING, gang.LIGHT_MIN),
    _gang_row(gang.LIGHT_MIN, "pod label", COSCHEDULING, gang.LIGHT_MIN),
    *(
        _gang_row(key, "pod annotation", VOLCANO, gang.VOLCANO_MIN)
        for key in (*gang.VOLCANO_NAMES, gang.VOLCANO_MIN)
    ),
    _other_gang("gang.scheduling.koordinator.sh/groups", "pod annotation", KOORDINATOR,
                _gang_groups),
    _other_gang("pod-group-name", "pod annotation", KAI, _size(asking=_ELSEWHERE)),
    _other_gang("kai.scheduler/batch-min-member", "pod annotation", KAI,
                _size("kai.scheduler/batch-min-member", asking=_ELSEWHERE)),
    _other_gang("kai.scheduler/subgroup-name", "pod label", KAI, _size(asking=_ELSEWHERE)),
    # Devices.
    SchedulerKey(
        "scheduling.koordinator.sh/device-allocate-hint", "pod annotation", KOORDINATOR,
        "which devices the pod gets", _DEVICE, _json(_device_hint), _DEVICES,
    ),
    SchedulerKey(
        "scheduling.koordinator.sh/device-joint-allocate", "pod annotation", KOORDINATOR,
        "devices of several types close together; `requiredScope` requires it",
        ("device", "preference"), _json(_joint), _DEVICES,
    ),
    SchedulerKey(
        "scheduling.koordinator.sh/gpu-partition-spec", "pod annotation", KOORDINATOR,
        "GPUs of one partition; Restricted and `ringBusBandwidth` require it",
        ("device", "preference"), _json(_partition), _DEVICES,
    ),
    SchedulerKey(
        "koordinator.sh/*", "resource", KOORDINATOR, "shared GPUs, RDMA and FPGA devices",
        ("device",), _always("device"),
        "use nodes with a Device object whose zones Topolog chooses (docs/owned-zones.md), request "
        "a resource of a device plugin (nvidia.com/gpu), or let koord-scheduler place the pod",
    ),
    SchedulerKey(
        "volcano.sh/vgpu-*", "resource", VOLCANO, "shared GPUs", _ELSEWHERE,
        _always("scheduler"), "request nvidia.com/gpu, or let Volcano place the pod",
    ),
    SchedulerKey(
        "volcano.sh/gpu-*", "resource", VOLCANO, "shared GPUs", _ELSEWHERE,
        _always("scheduler"), "request nvidia.com/gpu, or let Volcano place the pod",
    ),
    SchedulerKey(
        "gpu-fraction", "pod annotation", KAI, "a share of a GPU", _ELSEWHERE,
        _always("scheduler"), "request nvidia.com/gpu, or let KAI-Scheduler place the pod",
    ),
    SchedulerKey(
        "gpu-memory", "pod annotation", KAI, "a share of a GPU's memory", _ELSEWHERE,
        _always("scheduler"), "request nvidia.com/gpu, or let KAI-Scheduler place the pod",
    ),
    # Where pods run, beyond one node.
    SchedulerKey(
        "scheduling.koordinator.sh/reservation-affinity", "pod annotation", KOORDINATOR,
        "the pod runs in a Reservation", _ELSEWHERE, _json(_any_entry),
        "let koord-scheduler place the pod, or remove the key",
    ),
    SchedulerKey(
        gang.NETWORK, "pod annotation", KOORDINATOR,
        "pods close together in the network; MustGather requires it", ("gang", "preference"),
        _json(_gather), "name a gang, too (docs/gangs.md), or remove the key",
    ),
    SchedulerKey(
        "volcano.sh/network-topology-mode", "pod annotation", VOLCANO,
        "pods close together in the network; hard requires it", ("scheduler", "preference"),
        lambda value, _: {"": _NOTHING, "soft": _PREFERRED}.get(value, _ELSEWHERE), _RACKS,
    ),
    *(
        SchedulerKey(
            f"kai.scheduler/{prefix}topology-{kind}-placement", "pod annotation", KAI,
            f"pods in one domain of a topology ({kind})", asks, _always(*asks), _RACKS,
        )
        for prefix in ("", "segment-")
        for kind, asks in (("required", _ELSEWHERE), ("preferred", _PREFERRED))
    ),
    SchedulerKey(
        "kai.scheduler/segment-size", "pod annotation", KAI,
        "pods in one segment of a topology; a segment's placement is another key", _PREFERRED,
        _always("preference"), _RACKS,
    ),
    SchedulerKey(
        "kai.scheduler/node-pool", "pod label", KAI, "the pod runs in a node pool", _ELSEWHERE,
        _always("scheduler"), "use nodeSelector kai.scheduler/node-pool instead of the label",
    ),
    # Katalyst's agent.
    SchedulerKey(
        "katalyst.kubewharf.io/memory_enhancement", "pod annotation", KATALYST,
        "`numa_binding`: one zone; `numa_exclusive`: a zone of its own", _ELSEWHERE,
        _json(_flags(numa_binding="true", numa_exclusive="true")),
        "for numa_binding, write scheduling.koordinator.sh/numa-topology-spec with "
        "numaTopologyPolicy SingleNUMANode instead; only Katalyst's agent keeps numa_exclusive",
    ),
    SchedulerKey(
        "katalyst.kubewharf.io/cpu_enhancement", "pod annotation", KATALYST,
        "`numa_share`, `align_by_socket`, `full_pcpus_pairing`, `distribute_evenly_across_numa`, "
        "`numa_number`, `numa_ids`", _ELSEWHERE,
        _json(_flags(
            numa_share="false", align_by_socket="true", full_pcpus_pairing="true",
            distribute_evenly_across_numa="true", numa_number="*", numa_ids="*",
        )),
        _AGENT,
    ),
    SchedulerKey(
        "katalyst.kubewharf.io/numa_number", "pod annotation", KATALYST, "the number of zones",
        _ELSEWHERE, _always("scheduler"), _AGENT,
    ),
    SchedulerKey(
        "katalyst.kubewharf.io/numa_ids", "pod annotation", KATALYST, "the zones",
        _ELSEWHERE, _always("scheduler"), _AGENT,
    ),
    SchedulerKey(
        "katalyst.kubewharf.io/network_enhancement", "pod annotation", KATALYST,
        "network devices by namespace and zone", _ELSEWHERE,
        _json(_flags(
            topology_affinity_restricted="true", namespace_type="*",
        )),
        _AGENT,
    ),
    # When pods run.
    *(
        SchedulerKey(key, place, reader, "the pod's queue", _PREFERRED,
                     _always("preference"), _QUEUE)
        for key, place, reader in _QUEUES
    ),
    *(
        SchedulerKey(key, place, KAI, meaning, _PREFERRED, asks, _EVICTION)
        for key, place, meaning, asks in _EVICTIONS
    ),
)  # fmt: skip


# -- questions


class Asked(NamedTuple):
    """A key of a pod or node, and one thing that its value asks for."""

    row: SchedulerKey
    ask: Ask


_BY_PLACE: dict[str, dict[str, SchedulerKey]] = {}
for _row in KEYS:
    _BY_PLACE.setdefault(_row.place, {})[_row.key] = _row
_PREFIXES = tuple(row for row in KEYS if row.place == "resource")
BY_KEY: dict[str, SchedulerKey] = {row.key: row for row in KEYS}


def keys_of_pod(pod: Pod) -> dict[str, dict[str, str]]:
    """Return the annotations, labels and resources of a pod that ask for something, apart from
    topology policies and gangs, which the pod keeps elsewhere: by place, key -> value. {} for
    nearly every pod.
    """
    kept: dict[str, dict[str, str]] = {}
    read = ("zones", "gang") if pod.gang is not None else ("zones",)
    for place, words in (("pod annotation", pod.annotations), ("pod label", pod.labels)):
        rows = _BY_PLACE[place]
        # A value that asks for nothing may say so about another key: the size of a gang.
        keys = [key for key in sorted(words) if key in rows and rows[key].treated[0] not in read]
        if any(_asked(rows[key], words[key], words) for key in keys):
            kept[place] = {
                key: words[key] if len(words[key]) <= LONGEST_VALUE else "too long" for key in keys
            }
    resources = {
        name
        for container in pod.containers
        for name in (*container.requests, *container.limits)
        if any(row.matches(name) for row in _PREFIXES)
    }
    if resources:
        kept["resource"] = dict.fromkeys(sorted(resources), "requested")
    return {place: words for place, words in kept.items() if words}


def asked_by(kept: Mapping[str, Words]) -> Iterator[Asked]:
    """Yield what the keys ask for that `keys_of_pod` returned."""
    for place in ("pod annotation", "pod label"):
        words = kept.get(place, {})
        for key, value in words.items():
            row = _BY_PLACE[place].get(key)
            if row is not None:
                yield from (Asked(row, ask) for ask in _asked(row, value, words))
    for name in kept.get("resource", {}):
        for row in _PREFIXES:
            if row.matches(name):
                yield from (Asked(row._replace(key=name), ask) for ask in row.asks("requested", {}))


def asked_by_node(labels: Words) -> Iterator[Asked]:
    """Yield what a node's labels ask for."""
    for key, row in _BY_PLACE["node label"].items():
        if key in labels:
            yield from (Asked(row, ask) for ask in row.asks(labels[key], labels))


def _asked(row: SchedulerKey, value: str, words: Words) -> tuple[Ask, ...]:
    return () if "zones" in row.treated else row.asks(value, words)
