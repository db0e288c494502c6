"""The binder's judgement of every answer, and its work list as a fold."""

from __future__ import annotations

import pytest

from services.binder import core
from services.binder.core import BinderState, Reply, Work, judge
from shared.events import binding_events as binding
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import ClusterListed, PodEnded, PodObserved
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.log_events import LogOpened
from shared.events.scheduling_events import PodReserved, ReservationWithdrawn
from tests.ledger.given import pod

WORK = Work("uid-a", "n1", reserved_at=7, stage="intended", attempts=2)


def read(status: int, uid: str = "", node: str = "", terminating: bool = False) -> Reply:
    """Return the event for an unsuccessful answer to a binding, after the pod was read (no uid: it
    does not exist).
    """
    return Reply(status, "said", read=True, uid=uid, node=node, terminating=terminating)


@pytest.mark.parametrize(
    ("given", "then"),
    [
        (Reply(201), binding.PodBound("uid-a", "n1", attempts=3)),
        (Reply(200), binding.PodBound("uid-a", "n1", attempts=3)),
        (Reply(404, "said"), binding.BindRefused("uid-a", "n1", "gone", "said")),
        # Any other answer is not decided before the pod was read.
        (Reply(0, "lost"), "needs_read"),
        (Reply(409, "said"), "needs_read"),
        (Reply(429, "said"), "needs_read"),
        (Reply(500, "said"), "needs_read"),
        (Reply(503, "said"), "needs_read"),
        (Reply(403, "said"), "needs_read"),
        (Reply(422, "said"), "needs_read"),
        # On our node: success, whatever the answer was.
        (read(409, "uid-a", "n1"), binding.PodBound("uid-a", "n1", attempts=3, found=True)),
        (read(0, "uid-a", "n1"), binding.PodBound("uid-a", "n1", attempts=3, found=True)),
        (read(500, "uid-a", "n1"), binding.PodBound("uid-a", "n1", attempts=3, found=True)),
        # Definite: another node, another pod of that name, no pod.
        (
            read(409, "uid-a", "n2"),
            binding.BindRefused("uid-a", "n1", "other_node", "bound to n2: said"),
        ),
        (
            read(0, "uid-a", "n2"),
            binding.BindRefused("uid-a", "n1", "other_node", "bound to n2: said"),
        ),
        (read(409, "uid-b", "n1"), binding.BindRefused("uid-a", "n1", "other_uid", "said")),
        (read(409, "uid-b", ""), binding.BindRefused("uid-a", "n1", "other_uid", "said")),
        (read(0), binding.BindRefused("uid-a", "n1", "gone", "said")),
        # An unbound pod may still be bound by a call under way, so the binder can only send to the
        # same node again.
        (read(0, "uid-a"), binding.BindUncertain("uid-a", "n1", 3, "said")),
        (read(409, "uid-a"), binding.BindUncertain("uid-a", "n1", 3, "said")),
        (read(500, "uid-a"), binding.BindUncertain("uid-a", "n1", 3, "said")),
        (read(429, "uid-a"), binding.BindUncertain("uid-a", "n1", 3, "said")),
        (read(401, "uid-a"), binding.BindUncertain("uid-a", "n1", 3, "said")),
        # Being deleted and unbound: the API server takes no binding of it any more, whatever it
        # says of this one.
        (
            read(409, "uid-a", terminating=True),
            binding.BindRefused("uid-a", "n1", "terminating", "said"),
        ),
        (
            read(0, "uid-a", terminating=True),
            binding.BindRefused("uid-a", "n1", "terminating", "said"),
        ),
        (
            read(403, "uid-a", terminating=True),
            binding.BindRefused("uid-a", "n1", "terminating", "said"),
        ),
        # Deleted on the node to which it was bound, or another pod of the name that is deleted.
        (
            read(409, "uid-a", "n1", terminating=True),
            binding.PodBound("uid-a", "n1", attempts=3, found=True),
        ),
        (
            read(409, "uid-b", terminating=True),
            binding.BindRefused("uid-a", "n1", "other_uid", "said"),
        ),
        # The server judged the request itself, so it is not sent again.
        (read(400, "uid-a"), binding.BindRefused("uid-a", "n1", "invalid", "said")),
        (read(403, "uid-a"), binding.BindRefused("uid-a", "n1", "denied", "said")),
        (read(422, "uid-a"), binding.BindRefused("uid-a", "n1", "invalid", "said")),
        # Unless an earlier call of the same intent had arrived.
        (read(422, "uid-a", "n1"), binding.PodBound("uid-a", "n1", attempts=3, found=True)),
        (
            read(403, "uid-a", "n2"),
            binding.BindRefused("uid-a", "n1", "other_node", "bound to n2: said"),
        ),
    ],
)
def test_every_answer_has_one_meaning(given: Reply, then: object) -> None:
    assert judge(WORK, given) == then


POLICY = (
    "pods \"p1\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'x' denied "
    "request: node rh-1 is closed"
)
ENDS = (
    'pods "r32" is forbidden: unable to create new content in namespace race2 '
    "because it is being terminated"
)
NO_RIGHT = (
    'pods "p" is forbidden: User "u" cannot create resource "pods/binding" in API '
    'group "" in the namespace "n"'
)


@pytest.mark.parametrize(
    ("status", "message", "cause"),
    [
        (422, POLICY, "denied"),
        (403, POLICY, "denied"),
        (413, POLICY, "denied"),
        (403, NO_RIGHT, "forbidden"),
        (403, ENDS, "invalid"),
    ],
)
def test_a_denial_a_missing_right_and_an_ending_namespace_are_distinguished_by_message(
    status: int, message: str, cause: str
) -> None:
    """Recordings H of kube-apiserver 1.36: each may be a 403. No node is to blame for the last
    two.
    """
    assert judge(WORK, Reply(status, message, True, "uid-a")) == binding.BindRefused(
        "uid-a", "n1", cause, message
    )


class Told:
    """A binder's fold, which gets events one by one."""

    def __init__(self) -> None:
        self.state: BinderState = core.initial()
        self._versions: dict[str, int] = {}

    def tell(self, event: Event) -> Told:
        about = event.about.pod
        stream = streams.pod(about) if about else streams.LOG
        version = self._versions[stream] = self._versions.get(stream, 0) + 1
        position = self.state.position + 1
        core.evolve(
            self.state,
            Envelope(
                position,
                stream,
                version,
                type_of(event),
                1,
                encode(event),
                0,
                "t",
                0,
                str(position),
            ),
            event,
        )
        return self

    def stage(self) -> str:
        work = self.state.work.get("uid-a")
        return work.stage if work else "none"


@pytest.fixture
def reserved() -> Told:
    return (
        Told()
        .tell(PodObserved(pod("a")))
        .tell(PodReserved("uid-a", "n1", predicted={"c": (0, 1)}, certain=True))
    )


INTENT = binding.BindIntended("uid-a", "ns", "a", "n1", 2)


def test_a_reservation_is_work_and_its_intent_expects_the_version_that_was_seen(
    reserved: Told,
) -> None:
    assert reserved.stage() == "reserved"
    assert core.intend(reserved.state, "uid-a") == (INTENT, 2)


def test_an_intent_is_made_once(reserved: Told) -> None:
    reserved.tell(INTENT)
    assert reserved.stage() == "intended"
    assert core.intend(reserved.state, "uid-a") is None


def test_a_withdrawal_before_the_intent_ends_the_work_and_one_after_it_does_not(
    reserved: Told,
) -> None:
    late = Told().tell(PodObserved(pod("a"))).tell(PodReserved("uid-a", "n1")).tell(INTENT)
    withdrawn = ReservationWithdrawn("uid-a", "n1", "node_ended")
    assert reserved.tell(withdrawn).stage() == "none"
    assert late.tell(withdrawn).stage() == "intended"


@pytest.mark.parametrize(
    "outcome",
    [
        binding.PodBound("uid-a", "n1"),
        binding.BindRefused("uid-a", "n1", "gone", ""),
        binding.BindRefused("uid-a", "n1", "other_uid", ""),
        binding.BindRefused("uid-a", "n1", "other_node", ""),
        binding.BindRefused("uid-a", "n1", "terminating", ""),
        PodEnded("uid-a", "deleted"),
    ],
)
def test_a_definite_outcome_ends_the_work(reserved: Told, outcome: Event) -> None:
    assert reserved.tell(INTENT).tell(outcome).stage() == "none"


def test_an_uncertain_outcome_keeps_it_and_counts(reserved: Told) -> None:
    reserved.tell(INTENT).tell(binding.BindUncertain("uid-a", "n1", 4, "lost"))
    assert reserved.stage() == "intended"
    assert reserved.state.work["uid-a"].attempts == 4


def test_in_a_restored_log_nothing_is_to_be_done_until_the_cluster_was_listed(
    reserved: Told,
) -> None:
    reserved.tell(LogOpened("restored", 2)).tell(ClusterListed("nodes", 2))
    assert core.work_of(reserved.state, "reserved") == []
    assert core.waits(reserved.state).startswith(
        "pods of the cluster were not listed yet on timeline 2"
    )
    reserved.tell(ClusterListed("pods", 2))
    assert [work.uid for work in core.work_of(reserved.state, "reserved")] == ["uid-a"]
    assert core.waits(reserved.state) == ""


def test_a_reservation_of_an_older_release_waits_for_no_list(reserved: Told) -> None:
    reserved.tell(LogOpened("restored", 2)).tell(PodObserved(pod("b"))).tell(
        PodReserved("uid-b", "n1")
    )
    assert [work.uid for work in core.work_of(reserved.state, "reserved")] == ["uid-a", "uid-b"]


def test_nothing_is_intended_for_a_pod_that_ended(reserved: Told) -> None:
    assert core.intend(reserved.tell(PodEnded("uid-a", "deleted")).state, "uid-a") is None


def test_the_binding_carries_no_placement_that_is_not_certain() -> None:
    stream = Told().tell(PodObserved(pod("a")))
    stream.tell(PodReserved("uid-a", "n1", predicted={"c": (0,)}))
    assert core.binding_annotations(stream.state.work["uid-a"]) == {"topolog.io/reserved-at": "2"}
    nothing = Told().tell(PodObserved(pod("a"))).tell(PodReserved("uid-a", "n1", certain=True))
    assert core.binding_annotations(nothing.state.work["uid-a"]) == {"topolog.io/reserved-at": "2"}


def test_the_binding_carries_placement_and_position(reserved: Told) -> None:
    assert core.binding_annotations(reserved.state.work["uid-a"]) == {
        "topolog.io/reserved-at": "2",
        "topolog.io/placement": "c=0,1",
    }
