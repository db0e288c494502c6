"""The upstream plugin's caches behind the scheduler's core: what each cache withholds, when it is
corrected, and which events stay.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from plugins.upstream_compat.placing import UpstreamConfig
from services.scheduler.core import SchedulerCore
from services.scheduler.settings import Choice, SchedulerSettings, chosen
from shared.events.binding_events import BindIntended, PodBound
from shared.events.cluster_events import PodRunning
from shared.events.scheduling_events import NodeCharged
from shared.events.streams import pod as pod_stream
from shared.kubelet.fingerprint import fingerprint
from shared.runtime.settings import SettingsInvalid
from tests.ledger.given import held, pod, zone
from tests.scheduler.default.story import Story, foreign


def by(**settings: object) -> Story:
    """Return a story whose core has these settings."""
    story = Story()
    story.cores = [SchedulerCore(chosen(SchedulerSettings(**settings)).core)]  # type: ignore[arg-type]
    return story


async def two_zones(
    story: Story, at: int = 1, free: int = 8, names: tuple[str, ...] = (), node: str = "n1"
) -> None:
    shown = fingerprint([("ns", name) for name in names])
    placements = tuple(held(name, 0, 6) for name in names)
    zones = (zone(0, 8, free), zone(1, 8))
    await story.report(
        *zones, node=node, at=at, placements=placements, fingerprint=shown, fingerprint_method="all"
    )


async def bind(story: Story, name: str) -> None:
    made = pod(name, cpus=6)
    await story.tell(pod_stream(made.uid), BindIntended(made.uid, "ns", name, "n1", 1))
    await story.tell(pod_stream(made.uid), PodBound(made.uid, "n1"))


async def test_overreserve_charges_every_zone_until_a_matching_report_is_flushed() -> None:
    story = by(cache="overreserve")
    await story.node()
    await two_zones(story)
    await story.arrives(pod("a", cpus=6), pod("b", cpus=6))
    assert await story.decide() == {"uid-a": "n1"}
    await bind(story, "a")
    await story.seen_bound(pod("a", cpus=6), phase="Running")
    await two_zones(story, at=2, free=2, names=("a",))
    assert await story.decide() == {}
    story.cores[0].tick()
    assert await story.decide() == {"uid-b": "n1"}


async def test_own_reservations_count_within_one_batch() -> None:
    story = by(cache="overreserve")
    await story.node()
    await two_zones(story)
    await story.arrives(*(pod(f"p{number}", cpus=6) for number in range(4)))
    first = story.cores[0].decide(100)
    assert [bool(each.node) for each in first] == [True]
    await story.append(story.cores[0], first)
    assert await story.decide() == {}
    assert len(await story.reservations()) == 1


async def test_discardreserved_closes_a_node_until_the_binding() -> None:
    story = by(cache="discardreserved")
    await story.node()
    await two_zones(story)
    await story.arrives(pod("a", cpus=6), pod("b", cpus=6))
    assert await story.decide() == {"uid-a": "n1"}
    assert await story.verdicts(pod("b")) == [
        "0/1 nodes are available: 1 invalid node topology data."
    ]
    await bind(story, "a")
    assert await story.decide() == {"uid-b": "n1"}


async def test_passthrough_believes_the_newest_report_alone() -> None:
    story = by(cache="passthrough")
    await story.node()
    await two_zones(story)
    await story.arrives(*(pod(f"p{number}", cpus=8) for number in range(3)))
    assert len(await story.decide()) == 3
    await two_zones(story, at=2, free=2)
    await story.arrives(pod("late", cpus=9))
    assert await story.decide() == {}


@pytest.mark.parametrize(("compat", "expected"), [("default", {}), ("upstream", {"uid-a": "n2"})])
async def test_a_node_that_appears_later_is_placed_on_blindly_by_upstream_alone(
    compat: str, expected: dict[str, str]
) -> None:
    """R8."""
    story = by(cache="overreserve", compat=compat)
    await story.node("n1")
    await story.report(zone(0, 2), node="n1")
    await story.arrives(pod("early", cpus=1))
    await story.decide()
    await story.node("n2")
    await story.report(zone(0, 2), node="n2")
    await story.arrives(pod("a", cpus=6))
    assert await story.decide() == expected


async def test_node_level_predicates_still_apply() -> None:
    story = by(cache="passthrough")
    await story.node(unschedulable=True)
    await two_zones(story)
    await story.arrives(pod("a", cpus=6))
    assert await story.decide() == {}
    assert await story.verdicts(pod("a")) == [
        "0/1 nodes are available: 1 node(s) were unschedulable."
    ]


async def test_one_rejection_marks_a_node_and_the_events_are_those_of_the_ledger() -> None:
    story = by(cache="overreserve")
    await story.node()
    await two_zones(story)
    await story.arrives(pod("a", cpus=6))
    await story.decide()
    await story.arrives(pod("b", cpus=7))
    await story.decide()
    assert [(mark.node, mark.rejections) for mark in await story.marks()] == [("n1", 1)]
    (charged,) = await story.events(NodeCharged)
    assert isinstance(charged, NodeCharged)
    assert charged.zones == {0: {"cpu": 6000}, 1: {"cpu": 6000}}


async def test_a_foreign_pod_closes_its_node_until_it_is_reported() -> None:
    story = by(cache="overreserve")
    await story.node()
    await two_zones(story)
    await story.arrives(pod("first", cpus=9))
    await story.decide()
    await story.seen_bound(foreign(pod("f", cpus=6)))
    await story.arrives(pod("a", cpus=2))
    assert await story.decide() == {}
    await story.tell(pod_stream("uid-f"), PodRunning("uid-f", "n1"))
    await two_zones(story, at=2, free=2, names=("f",))
    story.cores[0].tick()
    assert await story.decide() == {"uid-a": "n1"}


# -- settings
# --------------------------------------------------------------------------------------------------


def settings(path: Path, text: str, **more: object) -> SchedulerSettings:
    (path / "plugin.yaml").write_text(text)
    return SchedulerSettings(plugin_config=str(path / "plugin.yaml"), **more)  # type: ignore[arg-type]


PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: topolog
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args: {scoringStrategy: {type: MostAllocated}, cacheResyncPeriodSeconds: 7}
- schedulerName: other
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args: {discardReservedNodes: true}
"""


def test_the_profile_of_our_name_gives_the_arguments(tmp_path: Path) -> None:
    choice = chosen(settings(tmp_path, PROFILES, compat="upstream"))
    assert choice.resync_period_s == 7
    assert choice.core.dirty_after_rejections == 1
    assert isinstance(choice.core.upstream, UpstreamConfig)
    assert choice.core.upstream.arguments.cache == "overreserve"
    assert choice.core.upstream.profiles == ("topolog",)


@pytest.mark.parametrize(
    ("other", "profiles"),
    [
        ("cacheResyncPeriodSeconds: 5", ("topolog", "other")),
        ("cacheResyncPeriodSeconds: 5, cache: {foreignPodsDetect: None}", ("topolog",)),
        ("discardReservedNodes: true", ("topolog",)),
    ],
)
def test_the_pods_of_profiles_that_the_plugin_registers_are_not_foreign(
    tmp_path: Path, other: str, profiles: tuple[str, ...]
) -> None:
    """The plugin's `initNodeTopologyForeignPodsDetection` registers the name of a profile. Only
    OverReserve calls it.
    """
    text = PROFILES.replace("discardReservedNodes: true", other)
    choice = chosen(settings(tmp_path, text, compat="upstream"))
    assert isinstance(choice.core.upstream, UpstreamConfig)
    assert choice.core.upstream.profiles == profiles


def test_the_pods_of_the_scheduler_that_a_file_was_written_for_are_foreign_to_another(
    tmp_path: Path,
) -> None:
    """During a migration the plugin's own scheduler still runs, and Topolog reserves nothing for
    its pods.
    """
    text = PROFILES[: PROFILES.index("- schedulerName: other")].replace(
        "schedulerName: topolog", "schedulerName: numa"
    )
    choice = chosen(settings(tmp_path, text, compat="upstream"))
    assert isinstance(choice.core.upstream, UpstreamConfig)
    assert choice.core.upstream.arguments.cache == "overreserve"
    assert choice.core.upstream.profiles == ("topolog",)


def test_by_default_the_ledger_decides_with_the_strategy_of_the_arguments(tmp_path: Path) -> None:
    assert chosen(SchedulerSettings()) == Choice(chosen(SchedulerSettings()).core)
    choice = chosen(settings(tmp_path, PROFILES))
    assert choice.core.upstream is None
    assert choice.core.cycle.strategy == "MostAllocated"
    assert choice.resync_period_s == 0


@pytest.mark.parametrize(
    ("text", "more", "problems"),
    [
        (
            "{cacheResyncPeriodSecond: x, scoringStrategy: {type: Leest}}",
            {},
            ["cacheResyncPeriodSecond", "scoringStrategy.type"],
        ),
        (PROFILES, {"scheduler_name": "third"}, ["other, topolog"]),
        ("{discardReservedNodes: true}", {"cache": "overreserve"}, ["drop one of the two"]),
        ("[1, 2]", {}, ["KubeSchedulerConfiguration"]),
    ],
)
def test_every_mistake_is_reported_before_the_start(
    tmp_path: Path, text: str, more: dict[str, object], problems: list[str]
) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        chosen(settings(tmp_path, text, **more))
    assert all(any(word in problem for problem in caught.value.problems) for word in problems), (
        caught.value.problems
    )


def test_a_missing_file_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        chosen(
            msgspec.structs.replace(SchedulerSettings(), plugin_config=str(tmp_path / "none.yaml"))
        )


ENABLED = "{cacheResyncPeriodSeconds: 7, preemptionMode: Enabled}"


@pytest.mark.parametrize("more", [{"compat": "upstream"}, {"cache": "overreserve"}])
def test_preemption_that_an_upstream_cache_does_not_do_is_warned_of(
    tmp_path: Path, more: dict[str, object]
) -> None:
    (warning,) = chosen(settings(tmp_path, ENABLED, **more)).warnings
    assert "preemptionMode: Enabled evicts nobody here" in warning
    assert "preemptionMode: Disabled" in warning


def test_where_the_ledger_decides_preemption_is_done_and_not_warned_of(tmp_path: Path) -> None:
    assert chosen(settings(tmp_path, ENABLED)).warnings == ()


def test_the_same_advice_is_not_given_twice(tmp_path: Path) -> None:
    assert (
        len(chosen(settings(tmp_path, "{preemptionMode: Enabled}", compat="upstream")).warnings)
        == 1
    )
