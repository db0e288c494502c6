"""The zones on which kubelets admitted the pods that this binder bound. They come from reports, and
from annotations of pods on nodes whose reports list no pods.

A pod is announced once, when it is listed completely. Above a limit the oldest pending pod is
dropped, because an announcement is a courtesy.

A prediction that was certain at the decision counts as certain here only if nothing else happened
on the node until the report: no other pod came or ended, and the report shows a change of no other
pod. That is stricter than `shared.ledger.certainty`, which needs the whole ledger.

Pods with an allocation are compared with what the node's enforcer lists of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from shared.domain.demand import zonal_demand
from shared.domain.idlist import parse_ids
from shared.domain.pod import Pod
from shared.domain.predicted import is_as_predicted
from shared.domain.report import POD_LEVEL, Placement
from shared.domain.zone_allocation import ZoneAllocation
from shared.events.binding_events import PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.events.surroundings_events import NodeDevicesObserved
from shared.kube.kai import placement_annotations
from shared.kubelet.cpuset import format_cpus
from shared.kubelet.masks import mask_of
from shared.ledger.confirmation import covers
from shared.owned.devices import GPU
from shared.owned.drift import drift_of

PENDING_PODS = 5_000
# The default name of KAI-Scheduler in pods (KAI-Scheduler d5bc503a, pkg/common/constants).
KAI_SCHEDULER = "kai-scheduler"
Annotate = Literal["auto", "true", "false"]
Zones = dict[str, tuple[int, ...]]


class Admitted(msgspec.Struct, frozen=True):
    """A pod that a report lists completely. `zones` and `predicted` map containers to zones;
    without a prediction `predicted` is empty. `one_zone` is as in `PodReserved`. `certain`: no
    kubelet that works like its model can put the pod elsewhere. `annotations` say where the pod is
    (KAI-Scheduler); empty if they are not wanted. `unlike` is what an enforcer has set otherwise
    than it was reserved, and `unpredicted` says which GPUs the device plugin gave instead of those
    that its rule prefers."""

    uid: str
    node: str
    zones: Zones
    predicted: Zones
    one_zone: str = ""
    certain: bool = False
    annotations: dict[str, str] = {}
    unlike: str = ""
    unpredicted: str = ""

    @property
    def drift(self) -> str:
        """What differs from the reservation, or from zones that were certain; else ""."""
        if self.unlike:
            return f"Runs on {self.node} otherwise than reserved: {self.unlike}"
        if self.unpredicted:
            return f"Admitted on {self.node} with other GPUs than predicted: {self.unpredicted}"
        if not self.certain or is_as_predicted(self.predicted, self.zones):
            return ""
        certain = _zones_text(self.predicted)
        return (
            f"Admitted on {_zones_text(self.zones)} of {self.node}, but {certain} was certain: the "
            "kubelet does not work like its model"
        )

    @property
    def missed(self) -> str:
        """The problem with the zones; "" if they are as required."""
        groups = list(self.zones.values())
        if self.one_zone == "pod":
            groups = [tuple(zone for zones in groups for zone in zones)]
        if not self.one_zone or all(len(set(zones)) < 2 for zones in groups):
            return ""
        required = "each container" if self.one_zone == "container" else "the pod"
        return (
            f"Admitted on {_zones_text(self.zones)} of {self.node}, but {required} was required to "
            "be in one zone"
        )

    @property
    def message(self) -> str:
        """The event's text: `Admitted on zone 1 of node-3, as predicted`."""
        text = f"Admitted on {_zones_text(self.zones)} of {self.node}"
        if not self.predicted:
            return text
        if is_as_predicted(self.predicted, self.zones):
            return f"{text}, as predicted"
        return f"{text}; predicted was {_zones_text(self.predicted)}"


class _Pending(msgspec.Struct):
    pod: Pod
    node: str = ""
    predicted: Zones = {}
    bound: bool = False
    one_zone: str = ""
    allocation: ZoneAllocation | None = None
    is_certain: bool = False
    predicted_gpus: tuple[str, ...] = ()


class _Watched(msgspec.Struct):
    """A pod with an allocation, and how its enforcer's latest list differs from it."""

    node: str
    allocation: ZoneAllocation
    unlike: str = ""


class Admissions:
    """Folds events in the order of the log. `annotate`: admitted pods get annotations of
    KAI-Scheduler; with `auto` from the first pod of KAI-Scheduler on."""

    def __init__(self, annotate: Annotate = "auto") -> None:
        self._annotate = annotate
        self._pending: dict[str, _Pending] = {}
        self._bound: dict[str, dict[str, str]] = {}
        # Node -> resources that its reports list by container, and the scope of pod-level pools.
        self._listed: dict[str, tuple[tuple[str, ...], str]] = {}
        # Node -> its pending pods with a prediction that nothing has made uncertain since.
        self._undisturbed: dict[str, set[str]] = {}
        # Node -> ids of the cards of its Device object, with the numbers of GPUs.
        self._card_ids: dict[str, dict[str, int]] = {}
        self._watched: dict[str, _Watched] = {}

    def fold(self, event: Event) -> list[Admitted]:
        """Fold an event and return the pods whose admission it shows, and admitted pods that their
        enforcer has begun to keep otherwise than reserved.
        """
        self._end_certainty(event)
        if self._annotate == "auto" and isinstance(event, PodObserved):
            self._annotate = "true" if event.pod.scheduler_name == KAI_SCHEDULER else "auto"
        if isinstance(event, PodObserved) and not event.node:
            self._pending[event.pod.uid] = _Pending(event.pod)
            if len(self._pending) > PENDING_PODS:
                self._forget(next(iter(self._pending)))
        elif isinstance(event, PodReserved) and event.uid in self._pending:
            pending = self._pending[event.uid]
            pending.node, pending.predicted = event.node, event.predicted
            pending.one_zone, pending.allocation = event.one_zone, event.allocation
            self._watched.pop(event.uid, None)
            if event.allocation is not None:
                self._watched[event.uid] = _Watched(event.node, event.allocation)
            if len(self._watched) > PENDING_PODS:
                del self._watched[next(iter(self._watched))]
            pending.is_certain = bool(event.certain and event.predicted and not event.allocation)
            pending.predicted_gpus = event.predicted_gpus
            if pending.is_certain or event.predicted_gpus:
                self._undisturbed.setdefault(event.node, set()).add(event.uid)
        elif isinstance(event, PodBound) and event.uid in self._pending:
            pending = self._pending[event.uid]
            pending.bound, pending.node = True, event.node
            self._bound.setdefault(event.node, {})[pending.pod.key] = event.uid
        elif isinstance(event, PodEnded):
            self._forget(event.uid)
            self._watched.pop(event.uid, None)
        elif isinstance(event, NodeDevicesObserved):
            self._card_ids[event.node] = {
                card.id: card.minor for card in event.devices if card.type == GPU
            }
        elif isinstance(event, PodObserved) and event.placement:
            pod = event.pod
            placement = Placement(pod.namespace, pod.name, POD_LEVEL, event.placement, pod.uid)
            return self._admitted(event.node, (placement,))
        elif isinstance(event, NodeReported):
            report = event.report
            listed = tuple([name for name in report.tracked if name not in report.unlisted])
            self._listed[report.node] = listed, report.pod_level_scope
            admitted = self._admitted(report.node, report.placements or ())
            return admitted + self._enforced(report.node, report.enforced)
        elif isinstance(event, NodeReportChanged):
            admitted = self._admitted(event.node, event.listed)
            return admitted + self._enforced(event.node, event.enforced)
        return []

    def _enforced(self, node: str, enforced: tuple[Placement, ...] | None) -> list[Admitted]:
        """Return the pods with an allocation of which the enforcer lists every container, or the
        whole pod, for the first time, and admitted ones that differ in another way than before.
        """
        by_uid: dict[str, list[Placement]] = {}
        for placement in enforced or ():
            if placement.pod_uid in self._watched:
                by_uid.setdefault(placement.pod_uid, []).append(placement)
        admitted = []
        for uid, placements in by_uid.items():
            watched, pending = self._watched[uid], self._pending.get(uid)
            if watched.node != node or (pending is not None and node not in self._bound):
                continue
            unlike = drift_of(watched.allocation, placements)
            if pending is not None:
                parts = [part.name for part in pending.pod.containers if part.kind != "init"]
                listed = {placement.container for placement in placements}
                is_news = POD_LEVEL in listed or listed.issuperset(parts)
            else:
                is_news = bool(unlike) and unlike != watched.unlike
            if is_news:
                admitted.append(Admitted(uid, node, _zones(placements), {}, unlike=unlike))
                self._forget(uid)
            watched.unlike = unlike
        return admitted

    def _admitted(self, node: str, listed: tuple[Placement, ...]) -> list[Admitted]:
        bound = self._bound.get(node)
        if not bound:
            return []
        by_key: dict[str, list[Placement]] = {}
        for placement in listed:
            key = f"{placement.namespace}/{placement.pod}"
            if key in bound:
                by_key.setdefault(key, []).append(placement)
        admitted = []
        for key, placements in by_key.items():
            uid = bound[key]
            demand = zonal_demand(self._pending[uid].pod, *self._listed.get(node, ((), "")))
            if demand and covers(demand, placements):
                pending = self._pending[uid]
                zones = _zones(placements)
                is_undisturbed = uid in self._undisturbed.get(node, ())
                wanted = self._annotate == "true" and POD_LEVEL not in zones
                annotations = placement_annotations(placements) if wanted else {}
                admitted.append(
                    Admitted(
                        uid,
                        node,
                        zones,
                        pending.predicted,
                        pending.one_zone,
                        is_undisturbed and pending.is_certain,
                        annotations,
                        self._other_gpus(pending, placements),
                        self._unpredicted(pending, placements) if is_undisturbed else "",
                    )
                )
                self._forget(uid)
        return admitted

    def _other_gpus(self, pending: _Pending, placements: list[Placement]) -> str:
        """Return the GPUs of the pod that Topolog did not choose, "" for none."""
        if pending.allocation is None or not pending.allocation.devices:
            return ""
        card_ids = frozenset(self._card_ids.get(pending.node, ()))
        return drift_of(pending.allocation, placements, card_ids)

    def _unpredicted(self, pending: _Pending, placements: list[Placement]) -> str:
        """Return the GPUs of the pod if its device plugin should have given others, else ""."""
        numbers = self._card_ids.get(pending.node, {})
        amounts = [amount for placement in placements for amount in placement.held]
        ids = {name for amount in amounts for name in parse_ids(amount.ids)} & numbers.keys()
        given = format_cpus(mask_of(numbers[name] for name in ids))
        if not given or not pending.predicted_gpus or given in pending.predicted_gpus:
            return ""
        return f"{given}, predicted {' or '.join(pending.predicted_gpus)}"

    def _end_certainty(self, event: Event) -> None:
        """End the certainty of all predictions on a node on which something else happened."""
        if isinstance(event, NodeCharged):
            self._keep_certain(event.node, {event.uid})
        elif isinstance(event, PodObserved) and event.node:
            if event.pod.uid not in self._pending:
                self._keep_certain(event.node, ())
        elif isinstance(event, PodEnded):
            for node in [event.node] if event.node else list(self._undisturbed):
                self._keep_certain(node, ())
        elif isinstance(event, NodeReported):
            self._keep_certain(event.report.node, ())
        elif isinstance(event, NodeReportChanged) and event.node in self._undisturbed:
            bound = self._bound.get(event.node, {})
            changed = {f"{placement.namespace}/{placement.pod}" for placement in event.listed}
            if event.unlisted or not changed <= bound.keys():
                self._keep_certain(event.node, ())

    def _keep_certain(self, node: str, uids: Iterable[str]) -> None:
        kept = self._undisturbed.get(node, set()).intersection(uids)
        if kept:
            self._undisturbed[node] = kept
        else:
            self._undisturbed.pop(node, None)

    def _forget(self, uid: str) -> None:
        pending = self._pending.pop(uid, None)
        if pending is not None:
            certain = self._undisturbed.get(pending.node, set())
            self._keep_certain(pending.node, certain - {uid})
        if pending is not None and pending.bound:
            bound = self._bound.get(pending.node, {})
            bound.pop(pending.pod.key, None)
            if not bound:
                self._bound.pop(pending.node, None)


def _zones(placements: list[Placement]) -> Zones:
    zones: Zones = {}
    for placement in placements:
        if placement.held:
            ids = {zone for amount in placement.held for zone in amount.zones}
            zones[placement.container] = tuple(sorted(ids))
    return zones


def _zones_text(zones: Zones) -> str:
    if len(set(zones.values())) == 1:
        return _ids_text(next(iter(zones.values())))
    return ", ".join(f"{_ids_text(ids)} ({name or 'pod'})" for name, ids in sorted(zones.items()))


def _ids_text(ids: tuple[int, ...]) -> str:
    return ("zone " if len(ids) == 1 else "zones ") + ", ".join(map(str, ids))
