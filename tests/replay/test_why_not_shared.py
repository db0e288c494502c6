"""Why a pod does not go to a node if several schedulers share pods and nodes: the scheduler that
had the pod answers.
"""

from __future__ import annotations

from services.replay.why_not import why_not
from shared.events.codec import decode
from shared.events.scheduling_events import PodReserved
from tests.whatif.histories import as_here, shared_by_two


async def test_the_chosen_node_is_shown_whichever_of_two_schedulers_chose_it() -> None:
    log = await shared_by_two(pods=12)
    cycle, own_first = as_here().cycle, 0
    for envelope in [each for each in await log.read(0, 1000) if each.type == PodReserved.__name__]:
        reserved = decode(envelope)
        assert isinstance(reserved, PodReserved)
        other_name = next(name for name in ("n0", "n1", "n2", "n3") if name != reserved.node)
        for moment in ("", str(reserved.based_on)):
            answer = await why_not(log, reserved.uid, other_name, moment, cycle)
            assert answer.instead == reserved.node, answer.answer
            own_first += f"is tried first by {envelope.role} of 2 schedulers" in answer.answer
    assert own_first > 0
