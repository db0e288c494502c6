"""Facts of deciding: verdicts, reservations with their charges, dirty marks, reconciliations,
nominations, what is in demand.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.domain.resources import Amounts
from shared.events.about import About

ReconcileMethod = Literal["proof", "fingerprint", "empty"]
WithdrawCause = Literal["node_ended", "unasked"]

AsideCause = Literal["rejected", "denied", "contested"]
ReadmitCause = Literal["retry", "operator"]


class PodVerdictChanged(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The pod cannot be placed and the reason differs from its last verdict. Stream `pod/<uid>`.

    `counts` is reason text -> number of nodes; `message` is the Kubernetes event line; `detail`
    holds the best near misses (structured refusals as JSON values) that `explain` prints.
    `based_on` is the position that the verdict was computed at, `order` the place in its batch;
    `config` and `code` as in `PodReserved`.
    """

    uid: str
    message: str
    counts: dict[str, int] = {}
    detail: tuple[dict[str, object], ...] = ()
    based_on: int = 0
    order: int = 0
    config: str = ""
    code: str = ""

    @property
    def about(self) -> About:
        return About(pod=self.uid)


class PodReserved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A node was chosen for the pod. Stream `pod/<uid>`; appended in one commit with `NodeCharged`.

    `report_version` is the version of `report/<node>` that the decision used, `order` the place in
    its batch, `score` 0..100, `candidates` how many nodes passed, `predicted` zone ids per
    container by the kubelet model (empty: none). `config` and `code` are fingerprints of what
    decided: with the log up to `based_on` and what the batch reserved before, the same
    configuration and code decide the same again (`topolog replay explain`).
    """

    uid: str
    node: str
    report_version: int = 0
    based_on: int = 0
    order: int = 0
    score: int = 0
    candidates: int = 0
    predicted: dict[str, tuple[int, ...]] = {}
    nominated: bool = False
    config: str = ""
    code: str = ""

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class NodeCharged(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The node carries the pod's charge from here on. Stream `node/<name>`. `zones` is the charge
    at the time of decision (zone id -> amounts) for people and for `explain`; the fold recomputes
    and widens it. `narrowed` is set where predictions are trusted: container (or "" for the whole
    pod) -> zones that the charge is held to until a fact widens it."""

    node: str
    uid: str
    zones: dict[int, Amounts] = {}
    narrowed: dict[str, tuple[int, ...]] = {}

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class ReservationWithdrawn(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The reservation no longer stands and nothing was, or will be, bound by it. Stream
    `pod/<uid>`.
    """

    uid: str
    node: str
    cause: WithdrawCause

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class NodeMarkedDirty(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A node with unproven reservations was refused N times in a row: compare its fingerprint.
    Stream `node/<name>`.
    """

    node: str
    cause: str
    rejections: int = 0

    @property
    def about(self) -> About:
        return About(node=self.node)


class NodeReconciled(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The report of `report_version` agrees with what is expected at `settled_to`: charges up to
    there are settled. Commit id is made from the report, so that several schedulers append it once.
    Stream `node/<name>`."""

    node: str
    method: ReconcileMethod
    report_version: int
    settled_to: int
    fingerprint: str = ""

    @property
    def about(self) -> About:
        return About(node=self.node)


class PodNominated(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A preemptor claims `node`: the claim charges the victims' zones until it binds or withdraws.
    `config` and `code` as in `PodReserved`. Stream `pod/<uid>`."""

    uid: str
    node: str
    victims: tuple[str, ...] = ()
    zones: dict[int, Amounts] = {}
    based_on: int = 0
    config: str = ""
    code: str = ""

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class NodeClaimed(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The claim of `PodNominated`, of the same commit, on the node's stream: nobody decides on the
    node without having seen it, and it was not made without having seen the node. Stream
    `node/<name>`."""

    node: str
    uid: str

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class NominationWithdrawn(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The nominee's claim ends (it was placed elsewhere, ended, or no longer fits). Stream
    `pod/<uid>`.
    """

    uid: str
    node: str
    cause: str

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class NodeSetAside(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Pods of a shape are not sent to the node any more: its kubelet rejected one that should have
    been admitted (`rejected`), an admission policy denied its binding (`denied`), or proposals for
    it lost too many races in a row (`contested`). It ends by a report that changes what was wrong,
    or by `NodeReadmitted`. `evidence` is the position of the fact that says so, 0 where conflicts
    do; `strikes` counts how often that happened since a pod of the shape last ran there. Stream
    `node/<name>`."""

    node: str
    shape: str
    cause: AsideCause
    detail: str
    uid: str = ""
    evidence: int = 0
    strikes: int = 1

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class NodeReadmitted(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Pods of the shape ("": of every shape) may be sent to the node again: it is tried once more
    (`retry`), or an operator says so. Stream `node/<name>`."""

    node: str
    shape: str = ""
    cause: ReadmitCause = "retry"

    @property
    def about(self) -> About:
        return About(node=self.node)


class PodReadmitted(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A pod whose binding was `forbidden` or `invalid` is decided again. Stream `pod/<uid>`."""

    uid: str
    cause: ReadmitCause = "retry"

    @property
    def about(self) -> About:
        return About(pod=self.uid)


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What containers (or pods, where kubelets align whole pods) ask of one zone together, and what
    room for it weighs when nodes are ranked. The weight was made from how many of them run
    (`running`) and wait (`waiting`), and for how many more the cluster's zones had room (`room`).
    """

    amounts: Amounts
    weight: int
    running: int = 0
    waiting: int = 0
    room: int = 0


class DemandWeighed(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What pods ask of zones now, the scarcest room first: nodes are ranked by the newest of these
    facts where the strategy looks at room. A fact, so that a replay ranks alike. Stream `demand`.
    """

    wanted: tuple[Wanted, ...] = ()

    @property
    def about(self) -> About:
        return About()


SchedulingEvent = (
    PodVerdictChanged
    | PodReserved
    | NodeCharged
    | ReservationWithdrawn
    | NodeMarkedDirty
    | NodeReconciled
    | PodNominated
    | NodeClaimed
    | NominationWithdrawn
    | NodeSetAside
    | NodeReadmitted
    | PodReadmitted
    | DemandWeighed
)
