"""The model on the machine of a real kubelet: its /sys, its configuration, its pods; the
checkpoints must come out equal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.cli.machine_describe import describe
from services.cli.machine_file import MachineFile, parse_machine
from services.exporter.folders import FolderTree
from services.exporter.sysfs import read_machine
from shared.domain.manifest import pod_from_manifest
from shared.domain.pod import Pod
from shared.kubelet.admission import admit, build, remove
from shared.kubelet.checkpoint import CpuCheckpoint, memory_checkpoint, write_cpu, write_memory
from shared.kubelet.machine import KubeletState
from shared.kubelet.stale import drop_stale_cpu
from tests.recorded_node import unpacked

# The last recorded moment is left out, because a pod that no moment shows came and went before it.
MOMENTS = (
    "01-one-guaranteed",
    "02-with-burstable-and-besteffort",
    "03-second-guaranteed-with-hugepages",
    "04-fractional-guaranteed",
    "05-rejected-topology-affinity",
    "06-first-deleted",
)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("recordings"))


def recorded_kubelet(recordings: Path) -> KubeletState:
    tree = FolderTree(recordings / "sysfs")
    document = describe(
        read_machine(tree), tree, yaml.safe_load((recordings / "kubelet-config.yaml").read_text())
    )
    parsed = parse_machine(yaml.safe_load(yaml.safe_dump(document)))
    assert isinstance(parsed, MachineFile), parsed
    state = build(parsed.machine, parsed.kubelet, parsed.devices)
    assert isinstance(state, KubeletState), state
    return state


def test_every_recorded_moment_has_the_checkpoints_that_the_model_writes(recordings: Path) -> None:
    state = recorded_kubelet(recordings)
    for moment in MOMENTS:
        folder = recordings / moment
        state = played(state, json.loads((folder / "pods.json").read_text())["items"])
        # The CPU Manager's reconciliation, which ran every 5 s, drops stale entries.
        cpu = drop_stale_cpu(state).cpu
        written = write_cpu(CpuCheckpoint("static", cpu.shared, cpu.entries))
        assert written == (folder / "cpu_manager_state").read_bytes(), moment
        assert (
            write_memory(memory_checkpoint(state.memory))
            == (folder / "memory_manager_state").read_bytes()
        ), moment


def played(state: KubeletState, manifests: list[dict[str, Any]]) -> KubeletState:
    """Return the state after missing pods ended and new ones were admitted in order of age. Check
    that each result is the recorded one.
    """
    listed = {manifest["metadata"]["uid"]: manifest for manifest in manifests}
    for uid in [uid for uid in state.pods if uid not in listed]:
        state = remove(state, uid)
    by_age = sorted(
        listed.values(),
        key=lambda manifest: (manifest["metadata"]["creationTimestamp"], _name(manifest)),
    )
    for manifest in by_age:
        pod = pod_from_manifest(manifest)
        assert isinstance(pod, Pod)
        if pod.uid in state.pods:
            continue
        verdict = admit(state, pod)
        assert verdict.reason == manifest["status"].get("reason", ""), _name(manifest)
        state = verdict.state
    return state


def _name(manifest: dict[str, Any]) -> str:
    return str(manifest["metadata"]["name"])
