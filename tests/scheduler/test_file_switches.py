"""A first decision goes through few files: the calls from one file of the project to another are
counted, and the files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import msgspec
import pytest

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.domain.report import Zone, ZoneResource
from shared.events import streams
from shared.events.report_events import NodeReported
from tests.ledger.given import GIB, History, container, pod, report

# Calls from file to file, and files, that a first decision may take. When this was first counted, a
# decision made 282 calls. Under restricted and best-effort it also predicts the zones that a node
# gives the pod, and keeps room for sets of zones and whole nodes.
MOST = {
    "single-numa-node": (90, 35),
    "restricted": (105, 40),
    "best-effort": (118, 41),
}
# Pending pods of each of the three nodes.
PENDING = 3
NODES = ("n1", "n2", "n3")
ROOT = Path(__file__).parents[2]
OWN = (f"{ROOT}/services/", f"{ROOT}/shared/")


class Switches:
    """Counts calls from one file of the project into another."""

    def __init__(self) -> None:
        self.count = 0
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        caller = frame.f_back
        if event != "call" or caller is None:
            return
        file, caller_file = frame.f_code.co_filename, caller.f_code.co_filename
        if file.startswith(OWN):
            self.files.add(file)
            self.count += file != caller_file and caller_file.startswith(OWN)


def asks(name: str, cpus: int) -> Pod:
    return pod(name, container("c", cpus, 1, 4 * GIB))


def cluster(policy: str) -> ColumnarPlacing:
    """Three nodes of two zones, with pending pods in unconfirmed zones."""
    history, amounts = History(), {"cpu": 16_000, "memory": 64 * GIB, "vendor.com/gpu": 4}
    zones = [
        Zone(
            at, {name: ZoneResource(amount, amount, amount) for name, amount in amounts.items()}, {}
        )
        for at in (0, 1)
    ]
    for node in NODES:
        whole = {name: 2 * amount for name, amount in amounts.items()}
        history.node(
            node,
            uid=f"uid-{node}",
            allocatable={**whole, "pods": 110},
            kubelet_version="v1.36.2",
        )
        made = msgspec.structs.replace(report(*zones, policy=policy), node=node)
        history.tell(streams.report(node), NodeReported(made))
        for number in range(PENDING):
            history.reserve(asks(f"{node}-{number}", 3), node)
    placing = ColumnarPlacing(CycleConfig())
    for node in NODES:
        placing.put_node(history.ledger.nodes[node])
    for uid, entry in history.ledger.pods.items():
        placing.follow(uid, entry)
    return placing


def counted(placing: ColumnarPlacing, asking: Pod) -> tuple[Placed | Unplaceable, Switches]:
    switches, earlier = Switches(), sys.getprofile()
    sys.setprofile(switches)
    try:
        outcome = placing.place(asking)
    finally:
        sys.setprofile(earlier)
    return outcome, switches


@pytest.mark.parametrize("policy", MOST)
def test_a_first_decision_next_to_unconfirmed_pods_goes_through_few_files(policy: str) -> None:
    """The process is warm, the cluster and the pod class are new."""
    cluster(policy).place(asks("other", 2))
    placing = cluster(policy)
    assert placing.unconfirmed() == list(NODES)
    outcome, switches = counted(placing, asks("new", 4))
    assert isinstance(outcome, Placed)
    most_calls, most_files = MOST[policy]
    assert 60 < switches.count <= most_calls
    assert 20 < len(switches.files) <= most_files
