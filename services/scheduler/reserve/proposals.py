"""Proposals: what the core wants appended. Each becomes one commit, whose id makes a repeated
proposal a duplicate.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from services.scheduler.snapshot.config import Provenance
from services.scheduler.snapshot.result import Nomination, Placed, Unplaceable
from shared.domain.cells import Cells
from shared.domain.pod import Pod
from shared.domain.resources import Amounts
from shared.eventlog.port import ANY_VERSION, Draft
from shared.events import streams
from shared.events.catalog import Event
from shared.events.scheduling_events import (
    BookingEnded,
    DemandWeighed,
    NodeCharged,
    NodeClaimed,
    NominationWithdrawn,
    PodNominated,
    PodReserved,
    PodVerdictChanged,
    ReservationWithdrawn,
    Wanted,
    WithdrawCause,
)
from shared.ledger.state import Ledger, LedgerNode, LedgerPod


class Proposal(msgspec.Struct, frozen=True):
    """One future commit. On a conflict `uid` and `node` are decided again ("" for none), and so is
    each of the `members` of a gang that it reserves as a whole."""

    commit_id: str
    drafts: tuple[Draft, ...]
    correlation: str
    causation: int
    uid: str = ""
    node: str = ""
    members: tuple[Proposal, ...] = ()

    @property
    def pods(self) -> tuple[Proposal, ...]:
        """The proposal of each pod."""
        return self.members or (self,)

    @property
    def chained(self) -> frozenset[str]:
        """The streams whose versions it expects, and moves for later proposals of its batch."""
        return frozenset([draft.stream for draft in self.drafts])

    @property
    def counts_once_folded(self) -> bool:
        """Whether no further pod is decided until the fold has it: it nominates a pod, or uses a
        booking."""
        events = [draft.event for draft in self.drafts]
        return any(
            isinstance(event, PodNominated) or (isinstance(event, PodReserved) and event.drawn_from)
            for event in events
        )


def in_order(proposals: Iterable[Proposal]) -> list[Proposal]:
    """Return the batch with expected versions that count the events of earlier proposals. All
    proposals were decided on one state, each with the earlier ones in mind.
    """
    made: Counter[str] = Counter()
    ordered = []
    for proposal in proposals:
        moved = any(draft.stream in made for draft in proposal.drafts)
        drafts = (
            tuple(_later(draft, made[draft.stream]) for draft in proposal.drafts)
            if moved
            else proposal.drafts
        )
        made.update([draft.stream for draft in proposal.drafts])
        ordered.append(msgspec.structs.replace(proposal, drafts=drafts) if moved else proposal)
    return ordered


def whole(members: Iterable[Proposal], domain: dict[str, str]) -> Proposal:
    """Return the reservations of a gang, decided one after the other in this domain, as one
    commit."""
    ordered = in_order(members)
    drafts = tuple(
        msgspec.structs.replace(draft, event=_of_gang(draft.event, len(ordered), domain))
        for member in ordered
        for draft in member.drafts
    )
    first = ordered[0]
    return msgspec.structs.replace(
        first, commit_id=f"gang/{first.commit_id}", drafts=drafts, members=tuple(ordered)
    )


def _of_gang(event: Event, size: int, domain: dict[str, str]) -> Event:
    if not isinstance(event, PodReserved):
        return event
    return msgspec.structs.replace(event, gang=size, gang_domain=domain)


def _later(draft: Draft, made: int) -> Draft:
    """Return the draft as it is after so many events of its batch on its stream."""
    if draft.expected == ANY_VERSION:
        return draft
    return Draft(draft.stream, draft.event, draft.expected + made)


def together(proposals: Iterable[Proposal]) -> tuple[list[tuple[Proposal, str]], list[Proposal]]:
    """Return the proposals that may be sent at once, each with the commit id that it follows (""
    for none): the one before it on the same node, or of the same pod (a nomination follows its
    verdict). Then the proposals that follow two and must wait for both.
    """
    latest: dict[str, str] = {}
    sent: list[tuple[Proposal, str]] = []
    later: list[Proposal] = []
    for proposal in proposals:
        followed = {latest[stream] for stream in proposal.chained if stream in latest}
        waits = len(followed) > 1 or _LATER in followed
        if waits:
            later.append(proposal)
        else:
            sent.append((proposal, next(iter(followed), "")))
        latest.update(dict.fromkeys(proposal.chained, _LATER if waits else proposal.commit_id))
    return sent, later


# No commit id.
_LATER = " "


def stamped(proposal: Proposal, made: Provenance) -> Proposal:
    """Return the proposal with the provenance in its decisions."""
    drafts = tuple(
        msgspec.structs.replace(draft, event=_stamped(draft.event, made))
        for draft in proposal.drafts
    )
    return msgspec.structs.replace(proposal, drafts=drafts)


def _stamped(event: Event, made: Provenance) -> Event:
    if not isinstance(event, PodReserved | PodVerdictChanged | PodNominated):
        return event
    return msgspec.structs.replace(event, config=made.config, code=made.code)


def reservation(
    pod: Pod,
    placed: Placed,
    zones: dict[int, Amounts],
    order: int,
    position: int,
    pod_version: int,
    node_version: int,
    nominated: bool = False,
    narrowed: dict[str, tuple[int, ...]] | None = None,
    without_effect: tuple[str, ...] = (),
) -> Proposal:
    """Return a reservation: one event on the pod's stream and one on the node's, both at the
    versions that the decision saw.
    """
    reserved = PodReserved(
        uid=pod.uid,
        node=placed.node,
        report_version=placed.report_version,
        based_on=position,
        order=order,
        score=placed.score,
        candidates=placed.candidates,
        predicted=placed.predicted,
        nominated=nominated,
        certain=placed.certain,
        without_effect=without_effect,
        one_zone=placed.one_zone,
        allocation=placed.allocation,
        drawn_from=placed.booking,
        predicted_gpus=placed.predicted_gpus,
    )
    charged = NodeCharged(node=placed.node, uid=pod.uid, zones=zones, narrowed=narrowed or {})
    drafts = (
        Draft(streams.pod(pod.uid), reserved, pod_version),
        Draft(streams.node(placed.node), charged, node_version),
    )
    return Proposal(
        f"reserve/{pod.uid}/{pod_version}", drafts, pod.uid, position, pod.uid, placed.node
    )


def verdict(
    pod: Pod, refused: Unplaceable, order: int, position: int, pod_version: int
) -> Proposal:
    """Return a verdict, which differs from the pod's last."""
    event = PodVerdictChanged(
        uid=pod.uid,
        message=refused.message,
        counts=refused.counts,
        detail=refused.detail,
        based_on=position,
        order=order,
    )
    draft = Draft(streams.pod(pod.uid), event, pod_version)
    return Proposal(f"verdict/{pod.uid}/{pod_version}", (draft,), pod.uid, position, pod.uid)


def nomination(
    uid: str, result: Nomination, position: int, pod_version: int, node_version: int
) -> Proposal:
    """Return a nomination: the claim on both streams, at the versions that the search saw, so that
    no eviction rests on an old view.
    """
    nominated = PodNominated(
        uid=uid,
        node=result.node,
        victims=result.victims,
        zones=result.zones,
        based_on=position,
        devices=result.devices,
    )
    drafts = (
        Draft(streams.pod(uid), nominated, pod_version),
        Draft(streams.node(result.node), NodeClaimed(result.node, uid), node_version),
    )
    return Proposal(f"nominate/{uid}/{pod_version}", drafts, uid, position, uid)


def nomination_withdrawal(
    uid: str, node: str, cause: str, position: int, pod_version: int
) -> Proposal:
    """Return the end of a nomination."""
    draft = Draft(streams.pod(uid), NominationWithdrawn(uid, node, cause), pod_version)
    return Proposal(f"withdraw-nomination/{uid}/{pod_version}", (draft,), uid, position, uid)


def demand_weights(weights: tuple[Wanted, ...], position: int, version: int) -> Proposal:
    """Rank nodes by these demand weights from now on."""
    draft = Draft(streams.DEMAND, DemandWeighed(weights), version)
    return Proposal(f"demand/{version}/{position}", (draft,), streams.DEMAND, position)


def expired_bookings(
    bookings: Mapping[str, LedgerPod], now_us: int, position: int, versions: Mapping[str, int]
) -> list[Proposal]:
    """Return the ends of bookings whose time is over."""
    proposals = []
    for uid, entry in bookings.items():
        if entry.booking is None or entry.terminating:
            continue
        if 0 < entry.booking.terms.expires_us <= now_us:
            version = versions.get(streams.pod(uid), 0)
            draft = Draft(streams.pod(uid), BookingEnded(uid, "expired"), version)
            proposals.append(Proposal(f"expire/{uid}/{version}", (draft,), uid, position))
    return proposals


def withdrawals(
    ledger: Ledger,
    changed: Iterable[str],
    versions: Mapping[str, int],
    cells: Cells | None,
) -> list[Proposal]:
    """Return the withdrawals of reservations on changed nodes that ended or leave this cell, so
    that their pods are decided again. A node that comes back under the name is another machine,
    with other labels, taints and zones.
    """
    proposals = []
    for name in changed:
        node = ledger.nodes.get(name)
        if node is None:
            continue
        is_leaving = leaves(node, cells)
        cause: WithdrawCause = "node_leaves" if is_leaving else "node_ended"
        charged = node.charges if is_leaving else _charged_before(node)
        uids = [uid for uid in charged if ledger.pods[uid].stage == "reserved"]
        proposals += [
            withdrawal(uid, name, ledger.position, versions, cause) for uid in sorted(uids)
        ]
    return proposals


def leaves(node: LedgerNode, cells: Cells | None) -> bool:
    """Return whether another cell owns or wants the node."""
    if node.observed is None or cells is None:
        return False
    return not cells.has_node(node.name, node.observed.labels)


def usable(node: LedgerNode | None, cells: Cells | None) -> LedgerNode | None:
    """Return a node that may take pods: not without a Node object, because any exporter may report
    under its name, and not if it leaves."""
    return node if node and node.observed and not leaves(node, cells) else None


def _charged_before(node: LedgerNode) -> list[str]:
    # Pods charged before this machine was observed. On a node that stays none of them is reserved.
    since = node.observed_at if node.observed is not None else sys.maxsize
    return [uid for uid, charge in node.charges.items() if charge.charged_at < since]


def withdrawal(
    uid: str, node: str, position: int, versions: Mapping[str, int], cause: WithdrawCause
) -> Proposal:
    """Return the withdrawal of one reservation. It competes with the binder's intent by the version
    of the pod's stream: one of the two is appended.
    """
    stream = streams.pod(uid)
    version = versions.get(stream, 0)
    draft = Draft(stream, ReservationWithdrawn(uid, node, cause), version)
    return Proposal(f"withdraw/{uid}/{version}", (draft,), uid, position, node=node)
