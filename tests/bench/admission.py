"""Bench of pod admission: 3 containers x 5 resources on machines of 1 to 16 zones, 32 CPUs a zone.

Prints a JSON line for each number of zones: `pod_ms` is the time of one admission in the slowest of
the cases (every policy and scope, on an idle and on a crowded machine), `by_case` all of them. A
time is the median of a round; of five rounds the fastest counts, so that other work on the machine
does not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from shared.domain.pod import Container, Pod
from shared.domain.policies import POLICIES
from shared.kubelet.admission import admit, build
from shared.kubelet.config import KubeletConfig
from shared.kubelet.device_state import Device, Registered
from shared.kubelet.machine import KubeletState
from shared.kubelet.options import ConfigError
from tests.kubelet.machines import GIB, regular_machine

DEVICES_PER_ZONE = 8
ROUNDS = 5


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench admission", description=__doc__)
    parser.add_argument("--zones", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=0.2, help="time spent on each case")
    arguments = parser.parse_args(argv)
    for zones in arguments.zones:
        print(json.dumps(measure(zones, arguments.seconds)), flush=True)


def measure(zones: int, seconds: float) -> dict[str, object]:
    """Return one result line."""
    by_case = {}
    for policy in POLICIES:
        for scope in ("container", "pod") if policy != "none" else ("container",):
            idle = machine(zones, policy, scope)
            for name, state in (("idle", idle), ("crowded", crowded(idle, zones))):
                by_case[f"{policy}/{scope}/{name}"] = round(
                    one_ms(state, pod("measured"), seconds), 4
                )
    return {"zones": zones, "cpus": 32 * zones, "pod_ms": max(by_case.values()), "by_case": by_case}


def machine(zones: int, policy: str, scope: str) -> KubeletState:
    config = KubeletConfig(
        topology_policy=policy,
        topology_scope=scope,
        topology_options={"max-allowable-numa-nodes": "16"},
        cpu_policy="static",
        reserved_cpus="0-1",
        memory_policy="Static",
        reserved_memory={zone: {"memory": GIB} for zone in range(zones)},
    )
    built = build(regular_machine(zones, cores_per_zone=16), config, _devices(zones))
    if isinstance(built, ConfigError):
        raise SystemExit(built.message)
    return built


def _devices(zones: int) -> Registered:
    return {
        name: {
            f"{name[-3:]}-{zone:02}-{at:02}": Device(1 << zone)
            for zone in range(zones)
            for at in range(DEVICES_PER_ZONE)
        }
        for name in ("example.com/gpu", "example.com/nic")
    }


def pod(uid: str, cpus: int = 2) -> Pod:
    """Return a pod of three containers that request cpu, memory, hugepages and two kinds of devices
    each.
    """
    amounts = {
        "cpu": cpus * 1000,
        "memory": GIB,
        "hugepages-2Mi": GIB // 4,
        "example.com/gpu": 1,
        "example.com/nic": 2,
    }
    containers = tuple(Container(f"c{at}", "app", amounts, amounts) for at in range(3))
    return Pod(uid, "default", uid, "Guaranteed", containers)


def crowded(state: KubeletState, zones: int) -> KubeletState:
    """Return the machine after the admission of as many pods as it has zones."""
    for number in range(zones):
        state = admit(state, pod(f"other-{number}", cpus=6)).state
    return state


def one_ms(state: KubeletState, asked: Pod, seconds: float) -> float:
    """Return the time of one admission in milliseconds: the lowest median of five rounds of at
    least three admissions.
    """
    admit(state, asked)
    return min(_median_ms(state, asked, seconds / ROUNDS) for _ in range(ROUNDS))


def _median_ms(state: KubeletState, asked: Pod, seconds: float) -> float:
    times: list[float] = []
    ends = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < ends:
        started = time.perf_counter()
        admit(state, asked)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000
