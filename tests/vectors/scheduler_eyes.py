"""Recorded admission sequences as the scheduler sees them: before each admission the production
report of the recorded kubelet is folded, all its pods confirmed, and the verdict is compared with
the real kubelet's.

A pass must be an admission, always. A refusal must be one, too, unless kubelets that the scheduler
cannot distinguish from the recorded one disagree (`indistinguishable`), or the scheduler itself
reports an undecided part; those are counted by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from services.scheduler.explain.undecided import of_pod
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.pod import Pod
from shared.hints.devices import UNHEALTHY
from shared.kubelet.device_manager import Preferred
from shared.kubelet.machine import KubeletState
from shared.kubelet.options import ConfigError
from shared.kubelet.versions import DEFAULT
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, proven_world
from tests.vectors.indistinguishable import (
    agree,
    hides_devices,
    starting,
    with_devices_elsewhere,
    with_pods_started,
)
from tests.vectors.kinds.admission_sequences import cases, play, preference, started
from tests.vectors.shapes import pod_of

Json = dict[str, Any]
NOT_STARTED = "pods that have not started yet"


class Tally(msgspec.Struct):
    """Counts of compared verdicts; `bounded` counts by name those with an undecided part. The lists
    name `<case> op <number>`; `refused_within_bounds` are needless refusals among the bounded.
    """

    admissions: int = 0
    passed: int = 0
    refused: int = 0
    bounded_verdicts: int = 0
    bounded: dict[str, int] = {}
    unsound: list[str] = []
    refused_needlessly: list[str] = []
    refused_within_bounds: list[str] = []


def tally(doc: Json) -> Tally:
    """Count all admissions of a file of sequences."""
    tallied = Tally()
    for case in cases(doc):
        for number, passed, admitted, bounds in _verdicts(case):
            tallied.admissions += 1
            tallied.passed, tallied.refused = (
                tallied.passed + passed,
                tallied.refused + (not passed),
            )
            tallied.bounded_verdicts += bool(bounds)
            for name in bounds:
                tallied.bounded[name] = tallied.bounded.get(name, 0) + 1
            if passed is not admitted:
                wrong = (
                    tallied.unsound
                    if passed
                    else tallied.refused_within_bounds
                    if bounds
                    else tallied.refused_needlessly
                )
                wrong.append(f"{case['id']} op {number}")
    return tallied


def _verdicts(case: Json) -> Iterator[tuple[int, bool, bool, list[str]]]:
    """(step, whether the scheduler passed the node, whether the kubelet admitted, what was known
    within bounds only).
    """
    state, waiting = started(case), set[str]()
    prefer = preference(case["plugin_preferred_allocation"])
    for number, op in enumerate(case["ops"]):
        if not isinstance(state, KubeletState):
            return
        if op["op"] == "admit":
            pod = pod_of(op["pod"])
            world = proven_world(state, CycleConfig(), not_yet_running=waiting)
            _observe_version(world, state)
            refusal = world.cluster.verdict(pod, NODE)
            yield (
                number,
                refusal is None,
                op["expect"]["admitted"],
                [*of_pod(world.cluster, pod, NODE), *_unknown(state, pod, waiting, prefer)],
            )
            waiting |= {pod.uid}
        elif op["op"] == "start":
            waiting -= {op["uid"]}
        state = play(state, op, prefer)[0] or ConfigError("it does not start again")


def _observe_version(world: World, state: KubeletState) -> None:
    seen, rules = world.ledger.nodes[NODE].observed, state.kubelet.config.rules
    if seen is not None and rules != DEFAULT:
        world.observe(NODE, allocatable=seen.allocatable, kubelet_version=f"v{rules.version}.1")


def _unknown(
    state: KubeletState, pod: Pod, waiting: set[str], prefer: Preferred | None
) -> Iterator[str]:
    """Return the open questions on which the verdict depends: whether init containers have run, and
    the zones of unhealthy devices.
    """
    pods = starting(state, waiting)
    if pods and not agree(with_pods_started(state, pods), pod, prefer):
        yield NOT_STARTED
    if hides_devices(state, pod) and not agree(with_devices_elsewhere(state, pod), pod, prefer):
        yield UNHEALTHY
