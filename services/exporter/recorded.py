"""The report of a recorded moment: a folder of podresources answers and a /sys tree, through the
exporter's own core.

Must not know the command line, nor print anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from services.exporter import checkpoints, core, folders, kubelet_config, slices, source_recording
from services.exporter.kubelet_config import KubeletFacts
from services.exporter.sysfs import Machine, read_machine
from services.exporter.sysfs_cpus import read_layout
from shared.domain.report import DynamicGroup, Freshness, Report

CONFIG_FILES = ("kubelet-config.yaml", "config.yaml")
RECORDED_BOOT = "recorded"
SLICES_FILE = "resourceslices.json"


def report(
    recording: Path, sysfs: Path, node: str, config: Path | None, rules: core.Rules
) -> Report:
    """The report of `recording` on the machine of `sysfs`.

    Without `config`, a kubelet-config.yaml or config.yaml in the folder, beside it or beside the
    tree is taken. Raises RecordingError, SysfsError or KubeletConfigError.
    """
    pods = source_recording.pods(recording)
    allocatable = source_recording.allocatable(recording)
    tree = folders.FolderTree(sysfs)
    machine = read_machine(tree)
    machine = msgspec.structs.replace(machine, cpus=read_layout(tree, machine.zone_of_cpu))
    stored = checkpoints.parse(
        *(folders.read_bounded(recording / Path(name).name) or b"" for name in folders.CHECKPOINTS)
    )
    kubelet = _kubelet(recording, sysfs, config)
    dynamic = _dynamic(recording, node, machine, tree)
    scan = core.Scan(
        Freshness(RECORDED_BOOT, 0), machine, allocatable, pods, kubelet, stored, dynamic=dynamic
    )
    return core.report(node, "recording", scan, rules)


def _dynamic(
    recording: Path, node: str, machine: Machine, tree: folders.FolderTree
) -> tuple[DynamicGroup, ...] | None:
    """Devices for claims, where a list of ResourceSlices was recorded (`kubectl get resourceslices
    -o json`).
    """
    data = folders.read_bounded(recording / SLICES_FILE)
    if data is None:
        return None
    try:
        found = slices.devices(msgspec.json.decode(data, type=dict[str, Any]).get("items"), node)
    except (msgspec.MsgspecError, slices.SliceError) as error:
        raise source_recording.RecordingError(
            f"{recording / SLICES_FILE}: {error}; give a ResourceSliceList in JSON"
        ) from error
    return slices.groups(found, tree, frozenset(each.id for each in machine.nodes))


def _kubelet(recording: Path, sysfs: Path, config: Path | None) -> KubeletFacts:
    rooms = [recording, recording.parent, sysfs.parent]
    candidates = [config] if config else [room / name for room in rooms for name in CONFIG_FILES]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None and config:
        raise kubelet_config.KubeletConfigError(f"{config}: no such file; check --kubelet-config")
    if path is None:
        return KubeletFacts()
    return kubelet_config.parse(path.read_bytes(), str(path))
