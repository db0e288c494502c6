"""`topolog node readmit` appends one event to the stream of a known node."""

from __future__ import annotations

import pytest

from services.cli.node import readmit
from services.cli.output import CommandError
from shared.events.codec import decode
from shared.events.scheduling_events import NodeReadmitted
from tests.ledger.given import pod, zone
from tests.scheduler.default.story import Story


async def test_a_node_that_is_set_aside_is_opened_by_the_command() -> None:
    from tests.scheduler.default.test_exclusions import rejected

    story = Story()
    await story.node()
    await story.report(zone(0, 16))
    await rejected(story, pod("a", cpus=4), "n1")
    await story.arrives(pod("b", cpus=4))
    assert await story.decide() == {}
    position = await readmit(story.log, "n1", 0)
    (envelope,) = await story.log.read(position - 1)
    assert decode(envelope) == NodeReadmitted("n1", cause="operator")
    await story.fold()
    assert await story.decide() == {"uid-b": "n1"}


async def test_an_unknown_node_is_refused() -> None:
    with pytest.raises(CommandError, match="in the log"):
        await readmit(Story().log, "nobody", 0)
