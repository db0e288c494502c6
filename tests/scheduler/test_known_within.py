"""The reasons for an undecided node are shown by name: a node for each name, by every kind of
refusal, by `why-not` and by `replay explain`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from services.replay.explain import explain
from services.replay.recomputing import Deciding
from services.replay.why_not import why_not
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.explain import undecided
from services.scheduler.explain.undecided import DEPENDS_ON_STATE, NAMES, of_pod
from services.scheduler.snapshot.config import CycleConfig, Provenance
from services.scheduler.snapshot.result import Unplaceable
from shared.domain.pod import Pod
from shared.domain.refusal import Reason
from shared.events.cluster_events import PodEnded
from shared.hints import cpu, devices, memory
from shared.kubelet.admission import admission_steps, admit, drop_stale, start_containers
from shared.kubelet.machine import KubeletState
from shared.ledger import kubelet_states, open_holdings
from tests.kubelet.machines import container, guaranteed, kubelet
from tests.ledger.given import held, pod, zone
from tests.scheduler.cycle_worlds import World
from tests.scheduler.default.story import Story
from tests.scheduler.kubelet_worlds import NODE, proven_world, report_of
from tests.scheduler.test_cycle_torn_listing import listed
from tests.scheduler.test_unhealthy_devices import held_by, ill, two_and_one

Made = tuple[World, Pod]


def running(state: KubeletState, *pods: Pod) -> KubeletState:
    for started in pods:
        admission = admit(state, started)
        assert admission.admitted
        state = start_containers(admission.state, started)
    return drop_stale(state)


def without_layout(state: KubeletState) -> World:
    """Return the world as an older exporter reports it: without CPU ids."""
    world = proven_world(state, CycleConfig())
    world.report(msgspec.structs.replace(report_of(state, stored=True), cpus=None, boot_time_ms=2))
    return world


def memory_groups() -> Made:
    state = running(kubelet(2, "best-effort"), guaranteed("wide", container("c", 1, 80)))
    return proven_world(state, CycleConfig(), checkpoints=False), guaranteed(
        "p", container("c", 1, 60)
    )


def hidden_inits() -> Made:
    started = guaranteed("a", container("i", 3, 1, kind="init"), container("c", 1, 1))
    state = running(kubelet(2, "single-numa-node"), started, guaranteed("b", container("c", 7)))
    return proven_world(state, CycleConfig(), checkpoints=False), guaranteed("p", container("c", 4))


def whole_cores() -> Made:
    state = running(
        kubelet(2, "restricted", cpu_options={"full-pcpus-only": "true"}),
        guaranteed("a", container("c", 4, 1)),
    )
    return without_layout(state), guaranteed("p", container("c", 3))


def spread() -> Made:
    state = running(
        kubelet(2, "restricted"),
        guaranteed("a", container("c", 2, 1)),
        guaranteed("b", container("c", 7, 1)),
    )
    return without_layout(state), guaranteed("p", container("c0", 3), container("c1", 2))


def picks() -> Made:
    """One GPU belongs to both zones. If the first container gets it, the only GPU of the other zone
    is left for the second.
    """
    state = kubelet(2, "single-numa-node", gpus={"a": 0b01, "b": 0b11})
    return proven_world(state, CycleConfig()), guaranteed(
        "p", container("c0", 1, 1, 1), container("c1", 8, 1, 1)
    )


def unhealthy() -> Made:
    state = running(two_and_one(), guaranteed("x", container("c", 1, 1, 1)))
    return proven_world(ill(state, held_by(state, "x")), CycleConfig()), guaranteed(
        "p", container("c", 9, 1, 2)
    )


def ended() -> Made:
    """A pod ended, and a pending pod was admitted before or after that."""
    state = running(kubelet(2, "restricted"), guaranteed("a", container("c", 4, 1)))
    world = proven_world(state, CycleConfig())
    world.fold("pod/a", PodEnded("a", "deleted", node=NODE))
    world.bound(guaranteed("b", container("c", 5, 1)), NODE)
    return world, guaranteed("p", container("c0", 4), container("c1", 4))


def other_version() -> Made:
    state = running(kubelet(2, "restricted"), guaranteed("a", container("c", 4, 1)))
    world = proven_world(state, CycleConfig())
    observed = world.ledger.nodes[NODE].observed
    assert observed is not None
    world.observe(NODE, allocatable=observed.allocatable, kubelet_version="v1.37.0")
    return world, guaranteed("p", container("c0", 8), container("c1", 4))


def listed_no_more() -> Made:
    state = running(kubelet(2, "restricted"), guaranteed("a", container("c", 4, 1)))
    world = proven_world(state, CycleConfig())
    world.report(
        msgspec.structs.replace(report_of(kubelet(2, "restricted"), stored=True), boot_time_ms=2)
    )
    return world, guaranteed("p", container("c0", 5), container("c1", 7))


def no_placements() -> Made:
    state = running(kubelet(2, "restricted"), guaranteed("a", container("c", 4, 1)))
    world = proven_world(state, CycleConfig())
    world.report(msgspec.structs.replace(report_of(state), placements=None, boot_time_ms=2))
    return world, guaranteed("p", container("c0", 2), container("c1", 5), container("c2", 4))


def torn() -> Made:
    state, coming = (
        kubelet(2, "restricted", gpus={"g": 1}),
        guaranteed("a", container("c", 4, 1, 1)),
    )
    world = proven_world(state, CycleConfig())
    world.bound(coming, NODE)
    moment = list(admission_steps(state, coming))[1]
    world.report(listed(moment, coming, True))
    return world, guaranteed("p", container("c0", 5), container("c1", 6))


def never_listed() -> Made:
    state = kubelet(2, "restricted", cores_per_zone=4)
    world = proven_world(state, CycleConfig())
    world.report(msgspec.structs.replace(report_of(state), unlisted=("memory",), boot_time_ms=2))
    return world, guaranteed("p", container("c", 10, 70))


SCENES: dict[str, tuple[Callable[[], Made], Reason]] = {
    memory.SEVERAL_GROUPS: (memory_groups, Reason.TOO_LITTLE_FREE),
    open_holdings.HIDDEN: (hidden_inits, Reason.NO_SINGLE_ZONE),
    cpu.WHOLE_CORES: (whole_cores, Reason.SMT_ALIGNMENT),
    cpu.SPREAD: (spread, Reason.NO_ZONE_SET),
    undecided.PICKS: (picks, Reason.NO_ZONE_SET),
    devices.UNHEALTHY: (unhealthy, Reason.NO_ZONE_SET),
    open_holdings.ENDED: (ended, Reason.NO_SINGLE_ZONE),
    kubelet_states.OTHER_KUBELET: (other_version, Reason.NO_ZONE_SET),
    kubelet_states.EARLIER: (listed_no_more, Reason.NOT_ON_EVERY_BRANCH),
    kubelet_states.NO_PLACEMENTS: (no_placements, Reason.BRANCH_LIMIT),
    kubelet_states.PARTIALLY_LISTED: (torn, Reason.BRANCH_LIMIT),
    kubelet_states.UNLISTED: (never_listed, Reason.BRANCH_LIMIT),
}


def test_every_name_has_a_scene() -> None:
    assert SCENES.keys() == set(NAMES)
    assert {reason for _, reason in SCENES.values()} == DEPENDS_ON_STATE


@pytest.mark.parametrize("name", SCENES)
def test_a_refusal_names_amounts_that_are_known_only_within_bounds(name: str) -> None:
    made, reason = SCENES[name]
    world, asking = made()
    refusal = world.cluster.verdict(asking, NODE)
    assert refusal is not None
    assert refusal.reason is reason
    names = of_pod(world.cluster, asking, NODE)
    assert name in names
    assert f"(undecided: {', '.join(names)})" in refusal.remedy
    refused = world.cluster.place(asking)
    assert isinstance(refused, Unplaceable)
    assert refused.detail[0]["remedy"] == refusal.remedy


# -- reservations, nominations, why-not
# --------------------------------------------------------------------------------------------------

HERE = Provenance("config-1", "code-1")
WITHIN = "undecided: another kubelet version"


async def on_another_version(*pods: Pod, busy: bool = False) -> Story:
    """Return one node of an unrecorded kubelet version, and one that takes no pod."""
    story = Story()
    story.cores = [SchedulerCore(CoreConfig(provenance=HERE))]
    await story.node("n0", kubelet_version="v1.37.0")
    await story.node("other", unschedulable=True)
    low = msgspec.structs.replace(pod("low", cpus=8), priority=-1)
    if busy:
        await story.seen_bound(low, "n0", phase="Running")
    placements = (held("low", 0, 8),) if busy else ()
    await story.report(zone(0, 8, 0 if busy else 8), node="n0", placements=placements)
    await story.report(zone(0, 8), node="other")
    await story.arrives(*pods)
    await story.decide()
    return story


async def explained(story: Story, name: str) -> str:
    (story_lines,) = await explain(story.log, f"ns/{name}", Deciding(CycleConfig(), HERE))
    return "\n".join(text for line in story_lines.lines for text in line.detail)


async def test_the_story_of_a_reservation_and_its_prediction_shows_the_bounds() -> None:
    story = await on_another_version(pod("a", cpus=2))
    assert f"recomputed: the same ({WITHIN})" in await explained(story, "a")


async def test_so_does_that_of_a_nomination() -> None:
    story = await on_another_version(pod("a", cpus=2), busy=True)
    assert f"recomputed: the same ({WITHIN})" in await explained(story, "a")


async def test_so_does_that_of_a_pod_that_waits() -> None:
    story = await on_another_version(pod("a", cpus=6), pod("b", cpus=6))
    assert f"({WITHIN})" in await explained(story, "b")


async def test_too_little_even_at_most_is_shown_without_bounds() -> None:
    story = await on_another_version(
        msgspec.structs.replace(pod("a", cpus=2), priority=-2), busy=True
    )
    assert "node(s) had no NUMA zone with 2 free cpu" in await explained(story, "a")
    assert WITHIN not in await explained(story, "a")


async def test_why_not_shows_bounds_of_refusals_and_of_nodes_that_could_take_the_pod() -> None:
    story = await on_another_version(pod("big", cpus=9), pod("a", cpus=2))
    story_of_big = await why_not(story.log, "ns/big", "n0", "", CycleConfig())
    assert story_of_big.refusal["reason"] == Reason.NEVER_ALIGNED
    assert not any(WITHIN in line for line in story_of_big.lines), (
        "no state of the kubelet would help it"
    )
    waits = await why_not(
        (await on_another_version(pod("b", cpus=6), pod("c", cpus=6))).log,
        "ns/c",
        "n0",
        "",
        CycleConfig(),
    )
    assert any(WITHIN in line for line in waits.lines)
    open_ = await on_another_version(pod("a", cpus=2))
    reserved = next(each for each in await open_.log.read(0, 1000) if each.type == "PodReserved")
    fits = await why_not(open_.log, "ns/a", "n0", str(reserved.position - 1), CycleConfig())
    assert fits.lines == [WITHIN], fits.answer


def test_the_page_lists_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "feasibility.md").read_text()
    assert [name for name in NAMES if f"\n|{name}|" not in page] == []


def test_under_single_numa_node_it_matters_which_cpus_init_containers_leave() -> None:
    world = without_layout(
        running(kubelet(2, "single-numa-node"), guaranteed("a", container("c", 2, 1)))
    )
    leaves = guaranteed("p", container("i", 4, 1, kind="init"), container("c", 6, 1))
    assert of_pod(world.cluster, leaves, NODE) == (cpu.SPREAD,)
    assert of_pod(world.cluster, guaranteed("q", container("c", 6, 1)), NODE) == ()
