"""A simulated kubelet's decisions: listed before and during admission, verdicts, ends, restarts on
its checkpoints.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from services.exporter import wire
from services.exporter.answers import ListedPod
from services.exporter.podresources import podresources_pb2 as pb
from services.simulator import kubelet, kubelet_files, listing
from services.simulator.cluster import GPU, NodeShape, Policies, SimulatedNode, lay_out
from services.simulator.kubelet import KubeletNode, Trial
from shared.domain.pod import Container, Pod
from shared.domain.resources import CPU, MEMORY
from shared.kubelet.machine import KubeletState

GIB = 2**30


def machine(policy: str = "single-numa-node") -> SimulatedNode:
    return lay_out("n1", NodeShape(2, 8, 8 * GIB, {GPU: 4}), Policies(policy))


def pod(uid: str, cpus: int = 2, gpus: int = 0, **changes: object) -> Pod:
    amounts = {CPU: cpus * 1000, MEMORY: GIB, **({GPU: gpus} if gpus else {})}
    containers = (Container("c", "app", amounts, amounts),)
    return Pod(uid, "default", f"pod-{uid}", "Guaranteed", **{"containers": containers, **changes})  # type: ignore[arg-type]


def burstable(uid: str, cpu_milli: int) -> Pod:
    container = Container("c", "app", {CPU: cpu_milli}, {})
    return Pod(uid, "default", f"pod-{uid}", "Burstable", (container,))


def run(node: KubeletNode, *pods: Pod) -> tuple[KubeletNode, list[Trial]]:
    trials = []
    for started in pods:
        node, trial = kubelet.begin(kubelet.assign(node, started), started.uid)
        node = kubelet.conclude(node, kubelet.rebase(node, trial))
        trials.append(trial)
    return node, trials


def listed(pod: Pod, state: KubeletState) -> ListedPod:
    message = pb.ListPodResourcesResponse.FromString(listing.pod_message(pod, state))
    (listed_pod,) = wire.pods(message)
    return listed_pod


def test_pod_is_listed_with_nothing_then_half_then_whole() -> None:
    node, started = kubelet.start(machine()), pod("a", gpus=1)
    node = kubelet.assign(node, started)
    assert listed(started, node.shown).containers[0].cpus == ()
    node, trial = kubelet.begin(node, "a")
    seen = [listed(started, step).containers[0] for step in trial.steps]
    assert [(len(c.devices), len(c.cpus), len(c.memory)) for c in seen] == [
        (1, 0, 0),
        (1, 2, 0),
        (1, 2, 1),
    ]
    assert listed(started, node.shown).containers[0].cpus == ()
    node = kubelet.conclude(kubelet.show(node, trial.steps[0]), trial)
    assert listed(started, node.shown).containers[0] == seen[-1]
    assert node.pods["a"].phase == "running"


def test_pod_that_fits_no_zone_is_refused_and_forgotten() -> None:
    node, trials = run(kubelet.start(machine()), pod("a", 3), pod("b", 3), pod("c", 1))
    assert [trial.verdict.admitted for trial in trials] == [True, True, False]
    assert trials[2].verdict.reason == "TopologyAffinityError"
    assert set(node.pods) == {"a", "b"}
    assert set(node.state.pods) == {"a", "b"}


def test_burstable_pods_past_the_node_are_out_of_cpu_in_the_kubelets_words() -> None:
    node, trials = run(kubelet.start(machine()), burstable("a", 4000), burstable("b", 2500))
    verdict = trials[1].verdict
    assert verdict.reason == "OutOfcpu"
    assert (
        verdict.message
        == "Node didn't have enough resource: cpu, requested: 2500, used: 4000, capacity: 6000"
    )
    assert set(node.state.pods) == {"a"}


def test_end_frees_what_the_pod_held() -> None:
    node, _ = run(kubelet.start(machine()), pod("a", 3), pod("b", 3))
    node, trials = run(kubelet.end(node, "a"), pod("c", 3))
    assert trials[0].verdict.admitted
    assert kubelet.end(node, "unknown") is node


def test_pod_deleted_during_its_admission_leaves_nothing() -> None:
    node, trial = kubelet.begin(kubelet.assign(kubelet.start(machine()), pod("a", 3)), "a")
    node = kubelet.end(node, "a")
    assert node.pods == {}
    node = kubelet.conclude(node, kubelet.rebase(node, trial))
    assert node.pods == {}
    assert node.state.pods == {}
    assert node.state.cpu.entries == {}


def test_pod_that_ends_during_anothers_admission_stays_ended() -> None:
    node, _ = run(kubelet.start(machine()), pod("a", 3))
    node, trial = kubelet.begin(kubelet.assign(node, pod("b", 3)), "b")
    node = kubelet.end(node, "a")
    node = kubelet.conclude(node, kubelet.rebase(node, trial))
    assert set(node.state.pods) == {"b"}
    assert set(node.state.cpu.entries) == {"b"}


def test_init_container_is_not_listed_and_keeps_its_cpus() -> None:
    first = Container("init", "init", {CPU: 3000, MEMORY: GIB}, {CPU: 3000, MEMORY: GIB})
    main = Container("main", "app", {CPU: 1000, MEMORY: GIB}, {CPU: 1000, MEMORY: GIB})
    pod_spec = pod("a", containers=(first, main))
    node, _ = run(kubelet.start(machine()), pod_spec)
    assert [container.name for container in listed(pod_spec, node.shown).containers] == ["main"]
    node, trials = run(node, pod("b", 3), pod("c", 2))
    assert [trial.verdict.admitted for trial in trials] == [True, False]


def test_restart_on_checkpoints_keeps_every_placement(tmp_path: Path) -> None:
    pods = [pod("a", 3, 1), pod("b", 2)]
    node, _ = run(kubelet.start(machine()), *pods)
    kubelet_files.save(tmp_path, None, node.state)
    stored, reason = kubelet_files.load(tmp_path, kubelet.start(machine()).state)
    assert stored is not None, reason
    again, refused = kubelet.resume(kubelet.start(machine()), stored, pods)
    assert refused == []
    assert [listed(one, again.shown) for one in pods] == [listed(one, node.shown) for one in pods]


def test_restart_frees_pods_that_ended_meanwhile(tmp_path: Path) -> None:
    node, _ = run(kubelet.start(machine()), pod("a", 3), pod("b", 3))
    kubelet_files.save(tmp_path, None, node.state)
    stored, _ = kubelet_files.load(tmp_path, kubelet.start(machine()).state)
    assert stored is not None
    again, refused = kubelet.resume(kubelet.start(machine()), stored, [pod("b", 3)])
    assert refused == []
    again, trials = run(again, pod("c", 3))
    assert trials[0].verdict.admitted
    assert set(again.state.cpu.entries) == {"b", "c"}


@pytest.mark.parametrize("writes", range(4))
def test_a_kubelet_killed_while_it_saves_leaves_whole_files_in_the_order_of_its_managers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Devices, then CPUs, then memory, as they are allocated; readmitted, the pod keeps what the
    files hold.
    """
    kubelet_files.save(tmp_path, None, kubelet.start(machine()).state)
    node, _ = run(kubelet.start(machine()), pod("a", 3, 1))
    renames = iter(range(writes))
    rename = Path.replace

    def until_killed(draft: Path, target: Path) -> Path:
        if next(renames, None) is None:
            raise KeyboardInterrupt
        return rename(draft, target)

    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", until_killed)
        with contextlib.suppress(KeyboardInterrupt):
            kubelet_files.save(tmp_path, kubelet.start(machine()).state, node.state)
    stored, reason = kubelet_files.load(tmp_path, kubelet.start(machine()).state)
    assert stored is not None, reason
    books = {
        "devices": stored.devices.held,
        "cpu": stored.cpu.entries,
        "memory": stored.memory.entries,
    }
    assert [name for name, book in books.items() if book] == list(books)[:writes]
    again, refused = kubelet.resume(kubelet.start(machine()), stored, [pod("a", 3, 1)])
    assert refused == []
    assert listed(pod("a", 3, 1), again.shown) == listed(pod("a", 3, 1), node.shown)


def test_damaged_checkpoint_is_named_and_not_used(tmp_path: Path) -> None:
    node, _ = run(kubelet.start(machine()), pod("a"))
    kubelet_files.save(tmp_path, None, node.state)
    path = tmp_path / "cpu_manager_state"
    path.write_bytes(path.read_bytes().replace(b"static", b"statix"))
    stored, reason = kubelet_files.load(tmp_path, node.state)
    assert stored is None
    assert "cpu_manager_state" in reason


def test_nothing_stored_has_no_reason(tmp_path: Path) -> None:
    assert kubelet_files.load(tmp_path, kubelet.start(machine()).state) == (None, "")


def test_allocatable_does_not_shrink_and_lists_healthy_devices_by_zone() -> None:
    node, _ = run(kubelet.start(machine()), pod("a", 3, 2))
    allocatable = wire.allocatable(
        pb.AllocatableResourcesResponse.FromString(listing.allocatable_message(node.state))
    )
    assert allocatable.cpus == (1, 2, 3, 5, 6, 7)
    assert [(group.ids, group.zones) for group in allocatable.devices] == [
        (("gpu-0-00",), (0,)),
        (("gpu-0-01",), (0,)),
        (("gpu-1-00",), (1,)),
        (("gpu-1-01",), (1,)),
    ]
    assert [(block.resource, block.zones) for block in allocatable.memory] == [
        ("memory", (0,)),
        ("memory", (1,)),
    ]
