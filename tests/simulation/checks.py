"""What must hold after every step (ARCHITECTURE.md, S1 to S14), judged from the log, the API
server's truth and the kubelets'.

S1, S2, S3, S5, S7 by the audit of `topolog replay verify`; S4 at each rejection by a kubelet: there
must be a recorded cause. If the log is set back, it is judged again from its beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from services.replay.verifying import Audit
from services.scheduler.snapshot.owned_state import cpu_nesting
from services.scheduler.snapshot.owners import owners_of
from shared.domain.pod import Pod
from shared.domain.report import Report, ZonedAmount
from shared.domain.state_hash import state_hash
from shared.domain.zone_allocation import ZoneAllocation
from shared.eventlog.port import Outcome
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import report_events as reports
from shared.events import scheduling_events as scheduling
from shared.events.catalog import Event
from shared.events.codec import decode
from shared.events.envelope import Envelope
from shared.events.log_events import LogOpened
from shared.kubelet.admission import Admission
from shared.kubelet.cpuset import format_cpus, parse_cpus, union
from shared.ledger.state import Charge, LedgerNode
from tests.simulation.afresh import EVERY, differing
from tests.simulation.batches import Batches
from tests.simulation.cluster import ENDED, Api
from tests.simulation.fibers import Ask
from tests.simulation.gangs import GangChecks
from tests.simulation.log import SimClock, SimLog
from tests.simulation.node import SimNode
from tests.simulation.schedulers import SchedulerProcess

FULL_EVERY = 8
NEVER = 1 << 60
# Where an evicted pod goes: an intent to evict beside the intents to bind.
EVICTED = ""
CAUSES = ("lost device", "regained device", "policy", "lost state", "replaced", "removed")


class Reserved(msgspec.Struct, frozen=True):
    """A reservation and its position in the log, with the position, time (ms) and version of the
    node's report on which it was decided.
    """

    node: str
    position: int
    based_on: int
    report_ms: int = -1
    node_version: int = -1


class Checks:
    """The checks of a world. `broken` collects the violations."""

    def __init__(
        self,
        log: SimLog,
        api: Api,
        nodes: Sequence[SimNode],
        schedulers: Sequence[SchedulerProcess],
        marks: set[str],
        clock: SimClock,
    ) -> None:
        self.log, self.api, self.nodes, self.schedulers, self.marks, self.clock = (
            log,
            api,
            nodes,
            schedulers,
            marks,
            clock,
        )
        self.broken: list[str] = []
        self._begin()
        self._intents_lost: set[tuple[str, str]] = set()
        self._batches = Batches()
        self._steps = 0
        for node in nodes:
            node.refused, node.admitted, node.unkept = self.refused, self.covered, self.unkept

    def _begin(self) -> None:
        """Begin with an unknown log."""
        self.audit = Audit()
        self.gangs = GangChecks(self.audit.ledger)
        self.reserved: dict[str, Reserved] = {}
        self._seen_on: dict[tuple[str, str], int] = {}
        self._ended_at: dict[str, int] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self._ours: set[tuple[str, str]] = set()
        self._hashes: dict[int, str] = {}
        self._intents: set[tuple[str, str]] = set()
        self._believed_ms: dict[str, int] = {}
        self._known: dict[str, list[tuple[int, int, int]]] = {}
        self._restored_at, self._bound_then = 0, set[str]()

    def set_back(self, restored: bool) -> None:
        """The log is about to be another. Calls that were intended in this one may still be under
        way. After a restore the list of the cluster comes before the next decision, so that nothing
        bound until then is unforeseen."""
        self.after_step()
        intents = self._intents
        self._begin()
        self._intents_lost |= intents
        if restored:
            self._bound_then = set(self.api.bound)

    def after_step(self) -> None:
        """Read the new events and judge them."""
        self._steps += 1
        head = self.log.end
        if self.audit.ledger.position < head:
            for envelope in self.log.read_now(self.audit.ledger.position):
                event = decode(envelope)
                self.audit.see(envelope)
                self._note(envelope, event)
                self.marks.update(filter(None, [self.gangs.note(envelope, event)]))
        self.broken += self.gangs.broken()
        self._equal_hashes()
        self._nobody_outlives_a_list()
        if self._steps % FULL_EVERY == 0:
            self.audit.finish()
            self._let_go()
        if (
            self._steps % EVERY == 0
            and (scheduler := self.schedulers[self._steps // EVERY % len(self.schedulers)]).alive
        ):
            self.broken += (
                [f"S13: {difference}"] if (difference := differing(self.log, scheduler)) else []
            )
        self.broken += [
            f"{v.invariant} at {v.position}: {v.message}" for v in self.audit.violations
        ]

    def _note(self, envelope: Envelope, event: Event) -> None:
        self.marks.add(type(event).__name__)
        if isinstance(event, scheduling.PodReserved):
            if event.drawn_from:
                self.marks.add("a booking used")
            entries = (
                each
                for each in reversed(self._known.get(event.node, []))
                if each[0] <= event.based_on
            )
            _, moment, version = next(entries, (0, -1, -1))
            self.reserved[event.uid] = Reserved(
                event.node, envelope.position, event.based_on, moment, version
            )
            self._ours.add((event.uid, event.node))
        elif isinstance(event, scheduling.NodeCharged):
            self._note_charge(event)
            self._covers_on(event.node)
        elif isinstance(
            event, reports.NodeReported | reports.NodeReportChanged | cluster.NodeObserved
        ):
            self._never_back()
            self._note_known(event.about.node, envelope.position)
            self._covers_on(event.about.node)
        elif isinstance(event, cluster.PodObserved) and event.node:
            self._seen_on.setdefault((event.pod.uid, event.node), envelope.position)
        elif isinstance(event, LogOpened):
            self._restored_at = envelope.position
            if event.lost:
                self._bound_then = set(self.api.bound)
        elif isinstance(event, scheduling.PodNominated):
            self._lower_victims(event)
        elif isinstance(event, binding.BindIntended):
            self._intents.add((event.uid, event.node))
        elif isinstance(event, binding.EvictIntended):
            self._intents.add((event.uid, EVICTED))
        elif isinstance(event, cluster.PodEnded):
            self._true_end(event)
            self._note_widening()
            self._covers_on(event.node)
            self._ended_at.setdefault(event.uid, envelope.position)
            self.marks.add(f"ended {event.cause}")
        elif isinstance(event, binding.BindRefused):
            self.marks.add(f"bind refused {event.cause}")
            self._true_refusal(event)
        elif isinstance(event, binding.PodBound):
            self._true_binding(event)
        elif isinstance(event, scheduling.NodeReconciled):
            self.marks.add(f"reconciled {event.method}")

    def _note_known(self, name: str, position: int) -> None:
        """Note what a decision at this position knows of the node: the time of its report (ms) and
        the report's version.
        """
        node = self.audit.ledger.nodes[name]
        moment = self._moment(node.report) if node.report is not None else -1
        version = int(node.observed.resource_version) if node.observed is not None else -1
        self._known.setdefault(name, []).append((position, moment, version))

    def _never_back(self) -> None:
        """S10: the believed report of a node is never older than the believed one before; after the
        node has left, none may be believed for a while.
        """
        for name, node in self.audit.ledger.nodes.items():
            if node.report is None:
                continue
            moment, latest_ms = self._moment(node.report), self._believed_ms.get(name, -1)
            if moment < latest_ms:
                self.broken.append(
                    f"S10: {name} is believed to be as it was at {moment} ms, after {latest_ms} ms"
                )
            self._believed_ms[name] = max(moment, latest_ms)

    def _lower_victims(self, event: scheduling.PodNominated) -> None:
        """S7: only pods of a lower priority make room."""
        pods = self.audit.ledger.pods
        if event.uid not in pods:
            self.broken.append(f"S7: pods are to be evicted for {event.uid}, which has ended")
            return
        highest = max(
            (pods[uid].pod.priority for uid in event.victims if uid in pods), default=None
        )
        if highest is not None and highest >= pods[event.uid].pod.priority:
            self.broken.append(
                f"S7: pod {event.uid} of priority {pods[event.uid].pod.priority} is to evict one "
                f"of {highest}"
            )

    def _true_end(self, event: cluster.PodEnded) -> None:
        """Check that an end is true, because it frees the charge."""
        pod = self.api.by_uid(event.uid)
        if pod is not None and pod["status"].get("phase") not in ENDED:
            self.broken.append(
                f"S4: the log says that pod {event.uid} ended ({event.cause}), and it lives"
            )

    def _true_binding(self, event: binding.PodBound) -> None:
        if event.found:
            self.marks.add("found bound")
        if self.api.bound.get(event.uid) != [event.node]:
            self.broken.append(
                f"S5: the log has pod {event.uid} on {event.node}, the API server "
                f"{self.api.bound.get(event.uid)}"
            )

    def _true_refusal(self, event: binding.BindRefused) -> None:
        """Check that a refusal is final, because it frees the charge: the pod is deleted, being
        deleted, or on another node.
        """
        elsewhere = [node for node in self.api.bound.get(event.uid, []) if node != event.node]
        pod = self.api.by_uid(event.uid)
        if not elsewhere and pod is not None and not pod["metadata"].get("deletionTimestamp"):
            self.broken.append(
                f"S5: pod {event.uid} may yet be bound to {event.node}, the log says that it was "
                "refused"
            )

    def _moment(self, report: Report) -> int:
        """Return when the report was true, in virtual time."""
        node = next(node for node in self.nodes if node.name == report.node)
        return node.booted_ms[report.boot_id] + report.boot_time_ms

    def _note_charge(self, event: scheduling.NodeCharged) -> None:
        charge = self.audit.ledger.nodes[event.node].charges.get(event.uid)
        if charge is not None:
            self._allocated_once(charge, self.audit.ledger.nodes[event.node])
        if charge is not None and charge.alias is not None:
            self.marks.add("alias")
        if charge is not None and any(len(zones) > 1 for zones in charge.possible.values()):
            self.marks.add("several zones charged")

    def _note_widening(self) -> None:
        """Record which charges have grown since the last check."""
        for node in self.audit.ledger.nodes.values():
            for uid, charge in node.charges.items():
                size = sum(map(len, charge.possible.values()))
                if self._sizes.setdefault((node.name, uid), size) < size:
                    self.marks.add("widened")
                self._sizes[node.name, uid] = size

    def _let_go(self) -> None:
        """Check S9 for nodes: a node that left, or of which only a pod is known, is kept only while
        it reports, has a Device object, or a pod is charged there.
        """
        for name, node in self.audit.ledger.nodes.items():
            silent = node.report is None or (node.is_deleted and node.expired)
            silent = silent and node.devices is None
            if node.observed is None and silent and not node.charges and not node.claims:
                self.broken.append(f"S9: {name} left, nothing is there, and the ledger keeps it")

    def _nobody_outlives_a_list(self) -> None:
        """S9: after a believed list is recorded, no pod that it lacks is known any more."""
        for scheduler in self.schedulers:
            self.broken += [
                f"S9: {scheduler.name} believes in {each}" for each in scheduler.outlived
            ]
            scheduler.outlived.clear()

    def _equal_hashes(self) -> None:
        """S6, with the audit's own fold as one more replica."""
        hashes = (
            [(self.audit.ledger.position, state_hash(self.audit.ledger))]
            if any(s.hashes for s in self.schedulers)
            else []
        )
        for scheduler in self.schedulers:
            hashes += scheduler.hashes
            scheduler.hashes.clear()
        for position, value in hashes:
            if self._hashes.setdefault(position, value) != value:
                self.broken.append(f"S6 at {position}: two replicas differ")

    def appended(self, ask: Ask, outcomes: Sequence[Outcome]) -> None:
        """S12, of what one scheduler decided together."""
        self.broken += self._batches.misplaced(self.log, ask, outcomes)

    def binding(self, uid: str, _node: str) -> None:
        """S7 in truth: a binding call is carried out only after its intent is in the log."""
        self.after_step()
        if (uid, _node) not in self._intents | self._intents_lost:
            self.broken.append(f"S7: pod {uid} is bound to {_node} without an intent in the log")

    def evicting(self, uid: str) -> None:
        """S7: an eviction is carried out only after its intent is in the log."""
        self.after_step()
        if (uid, EVICTED) not in self._intents | self._intents_lost:
            self.broken.append(f"S7: pod {uid} is evicted without an intent in the log")

    # -- S11
    # ----------------------------------------------------------------------------------------------

    def covered(self, node: SimNode) -> None:
        """Check the charges of a node whose kubelet has admitted a pod."""
        self.after_step()
        self._covers(node)

    def _covers_on(self, name: str) -> None:
        for node in self.nodes:
            if node.name == name:
                self._covers(node)

    def _covers(self, node: SimNode) -> None:
        """Check S11: an unconfirmed pod is charged wherever it is, and a confirmed pod is in its
        confirmed zones, once the log has the cause of a move. Ends that the log does not have yet,
        and changes of the kubelet or machine since the report, are excused.
        """
        folded = self.audit.ledger.nodes.get(node.name)
        if (
            folded is None
            or folded.report is None
            or folded.basis is not folded.report
            or folded.listed is None
            or node.down
        ):
            return
        unheard = any(uid not in self._ended_at for uid in node.ended)
        if (
            unheard
            or node.readmitted
            or any(each.at_ms >= self._moment(folded.report) for each in node.changes)
        ):
            return
        places = node.places()
        self._surely_free(folded, places)
        for uid, charge in folded.charges.items():
            zones = {zone for item in places.get(uid, ()) for zone in item.zones}
            let_go = uid in node.arrived and uid not in node.kubelet.pods
            if (
                not zones
                or let_go
                or not charge.demand
                or not (charge.confirmed or charge.alias is None)
            ):
                continue
            possible = {zone for each in charge.possible.values() for zone in each}
            how, counted = (
                ("proven", {*charge.confirmed_zones, *charge.zones})
                if charge.confirmed
                else ("charged", possible)
            )
            self.marks.add(f"{how} zones compared with the truth")
            if not zones <= counted:
                self.broken.append(
                    f"S11: pod {uid} stands in {sorted(zones)} of {node.name}, {how} in "
                    f"{sorted(counted)}"
                )

    def _surely_free(self, node: LedgerNode, places: Mapping[str, Sequence[ZonedAmount]]) -> None:
        """Check S11 for zones: guaranteed free amounts are free once all pods of the node are
        charged. Resources that span several zones are left out, because their share per zone is
        unknown.
        """
        if not set(places) <= set(node.charges):
            return
        taken = Counter[tuple[int, str]]()
        for item in (item for held in places.values() for item in held if len(item.zones) == 1):
            taken[item.zones[0], item.resource] += item.amount
        for zone in node.report.zones if node.report is not None else ():
            for name, resource in zone.resources.items():
                free, truth = (
                    node.free_min.get(zone.id, {}).get(name, 0),
                    max(resource.allocatable - taken[zone.id, name], 0),
                )
                if free > truth:
                    self.broken.append(
                        f"S11: {name} surely free in zone {zone.id} of {node.name}: {free}, in "
                        f"truth {truth}"
                    )

    def _allocated_once(self, charge: Charge, node: LedgerNode) -> None:
        """S4 where Topolog chooses: the CPUs of a reservation are in its zones, no other pod has
        them, and its zones have what all pods in them were given, and all that pods of unknown
        zones request. What is left of its booking goes to no kubelet.
        """
        allocation, report = charge.allocation, node.report
        if allocation is None or report is None or not owners_of(report).is_owned:
            return
        self.marks.add("zones chosen")
        self._cards_given_once(allocation, node)
        machine, cpus = cpu_nesting(report.cpus), parse_cpus(allocation.cpus)
        with_booking = charge.uid, self.audit.ledger.pods[charge.uid].drawn_from
        others = [c.allocation for uid, c in node.charges.items() if uid not in with_booking]
        allocations = [other for other in others if other is not None]
        if twice := cpus & union(parse_cpus(other.cpus) for other in allocations):
            self.broken.append(f"S4: CPUs {format_cpus(twice)} of {node.name} twice")
        zones = {zone.id: zone.offered for zone in report.zones}
        based_on = self.reserved[charge.uid].based_on
        anywhere = [
            c.request
            for uid, c in node.charges.items()
            if c.allocation is None and uid not in with_booking and c.charged_at <= based_on
        ]
        if anywhere:
            self.marks.add("zones chosen beside pods of unknown zones")
        assert machine is not None
        if cpus & ~union(machine.in_zone[zone] for zone in allocation.zones if zone in zones):
            self.broken.append(f"S4: CPUs {allocation.cpus} outside of {sorted(allocation.zones)}")
        for zone, amounts in allocation.zones.items():
            for name in amounts:
                given = sum(
                    one.zones.get(zone, {}).get(name, 0) for one in (allocation, *allocations)
                )
                given += sum(request.get(name, 0) for request in anywhere)
                if given > zones.get(zone, {}).get(name, 0):
                    self.broken.append(f"S4: zone {zone} of {node.name} gives {given} {name}")

    def _cards_given_once(self, allocation: ZoneAllocation, node: LedgerNode) -> None:
        """S4: no card is given beyond what it has, unless its Device object shrank."""
        charges = [charge for charge in node.charges.values() if charge.allocation is not None]
        offered = {
            (device.type, device.minor): device.resources
            for device in (node.devices.devices if node.devices is not None else ())
            if device.is_healthy
        }
        for card in allocation.devices:
            self.marks.add("cards chosen")
            given = dict.fromkeys(card.resources, 0)
            for charge in charges:
                for held_card in charge.allocation.devices if charge.allocation is not None else ():
                    if (held_card.type, held_card.minor) == (card.type, card.minor):
                        for name in given:
                            given[name] += held_card.resources.get(name, 0)
            most = offered.get((card.type, card.minor), {})
            if over := [name for name in given if name in most and given[name] > most[name]]:
                self.broken.append(f"S4: {card.type} {card.minor} of {node.name} twice: {over}")

    def unkept(self, node: SimNode, pod: Pod, problem: str) -> None:
        """An agent cannot keep an annotation: a pod that the log no longer knows is still there."""
        self.after_step()
        over = {uid for uid in node.kubelet.pods if uid in self._ended_at and uid != pod.uid}
        if over or any(each.what in CAUSES and each.what != "policy" for each in node.changes):
            self.marks.add("an annotation that is not kept")
        else:
            self.broken.append(f"S4: the agent of {node.name} refused {pod.name}: {problem}")

    # -- S4
    # ----------------------------------------------------------------------------------------------

    def refused(self, node: SimNode, pod: Pod, verdict: Admission, again: bool) -> None:
        """A kubelet refused a pod; `again` when it did so at its restart."""
        reserved = self.reserved.get(pod.uid)
        self.after_step()
        if reserved is None or reserved.node != node.name:
            self.marks.add("foreign pod refused")
            return
        causes = self._causes(node, pod.uid, reserved, again)
        if not causes:
            self.broken.append(
                f"S4: {node.name} refused {pod.name} {pod.uid} ({verdict.reason}: "
                f"{verdict.message}), reserved at "
                f"{reserved.position}{' (readmission)' if again else ''}, without a recorded cause"
            )
        self.marks.update(f"refused after {cause}" for cause in causes)

    def _causes(self, node: SimNode, uid: str, reserved: Reserved, again: bool) -> set[str]:
        causes = {
            each.what
            for each in node.changes
            if each.what in CAUSES
            and (each.at_ms >= reserved.report_ms or each.version > reserved.node_version)
        }
        if node.readmitted & set(node.kubelet.pods):
            causes.add("init containers readmitted")
        causes |= self._unforeseen(node, uid, reserved, again)
        for cause in {*node.kubelet.pods, *node.met}:
            if cause in self._ended_at and cause != uid:
                causes.add("pod deleted by force")
        return causes

    def _unforeseen(self, node: SimNode, uid: str, reserved: Reserved, again: bool) -> set[str]:
        """Ends and bindings by others that the decision could not know, if the kubelet would have
        admitted the pod without them; at a readmission, and if a restart lies between, any. Of a
        pod that only the report listed the decision knows its zones and not its requests: the
        kubelet would have admitted with or without it. A pod that the kubelet rejected, as the
        decision knew, has no place without them either.
        """
        ends = {
            other for other in node.ended if self._ended_at.get(other, NEVER) > reserved.based_on
        }
        foreign = {
            other
            for other in node.arrived
            if other != uid and self._foreign_since(other, node.name, reserved.based_on)
        }
        reported = {
            other for other in foreign if node.admitted_ms.get(other, NEVER) < reserved.report_ms
        }
        informed = {
            other for other in node.arrived if other != uid and self._knew_one_of(ends, other)
        }
        turned_away = {
            other
            for other in node.arrived
            if other not in node.admitted_ms and self._known_to_end(other, reserved)
        }
        ways = (foreign | informed | turned_away, (foreign - reported) | informed | turned_away)
        if not again and all(node.past.refused_without(uid, ends, way) for way in ways):
            return set()
        return {cause for cause, found in (("pod ended", ends), ("foreign bind", foreign)) if found}

    def _known_to_end(self, uid: str, reserved: Reserved) -> bool:
        return self._ended_at.get(uid, NEVER) <= reserved.based_on

    def _foreign_since(self, uid: str, node: str, position: int) -> bool:
        if position >= self._restored_at and uid in self._bound_then:
            return False
        return (uid, node) not in self._ours and self._seen_on.get((uid, node), NEVER) > position

    def _knew_one_of(self, ends: Iterable[str], uid: str) -> bool:
        decided = self.reserved.get(uid)
        return decided is not None and any(self._known_to_end(each, decided) for each in ends)
