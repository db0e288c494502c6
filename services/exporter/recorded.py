"""The report of a recorded moment: a folder of podresources answers and a /sys tree.

Runs the exporter's own core. Must not know the command line, nor print anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from services.exporter import checkpoints, core, folders, kubelet_sources, slices, source_recording
from services.exporter.kubelet_config import KubeletConfigError, KubeletSettings, document, merged
from services.exporter.report_size import fitted
from services.exporter.sysfs import Machine, read_machine
from services.exporter.sysfs_cpus import read_layout
from shared.domain.report import DynamicGroup, Freshness, Report

# Names under which a folder may hold the kubelet's configuration, drop-ins in NAME.d.
CONFIG_FILES = (
    "kubelet-config.yaml",
    "config.yaml",
    "config.json",
    "kubelet-config.json",
    "kubelet.conf",
    "kubelet.yaml",
    "kubeletconfig.json",
)
FLAG_FILES = (kubelet_sources.KUBEADM_FLAGS, "kubelet")
COMMAND_FILES = "*cmdline*"
RECORDED_BOOT = "recorded"
SLICES_FILE = "resourceslices.json"


def report(
    recording: Path, sysfs: Path, node: str, config: Path | None, rules: core.Rules
) -> Report:
    """Return the report of `recording` on the machine of `sysfs`; see `with_notices`."""
    return with_notices(recording, sysfs, node, config, rules)[0]


def with_notices(
    recording: Path, sysfs: Path, node: str, config: Path | None, rules: core.Rules
) -> tuple[Report, tuple[str, ...]]:
    """Return the report, and what a reader must know of its gaps.

    The kubelet's settings come from copies of its sources: in the folder of `config`, else in the
    recording, its parent, or the parent of the tree (the first folder with any of them). Raises
    RecordingError, SysfsError or KubeletConfigError.
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
    scan = core.Scan(
        Freshness(RECORDED_BOOT, 0),
        machine,
        allocatable,
        pods,
        kubelet,
        stored,
        dynamic=_dynamic(recording, node, machine, tree),
    )
    made, cut = fitted(core.report(node, "recording", scan, rules))
    return made, (*scan.notices, cut) if cut else scan.notices


def _dynamic(
    recording: Path, node: str, machine: Machine, tree: folders.FolderTree
) -> tuple[DynamicGroup, ...] | None:
    """Return the devices for claims by a recorded `kubectl get resourceslices -o json`."""
    data = folders.read_bounded(recording / SLICES_FILE)
    if data is None:
        return None
    try:
        devices = slices.devices(msgspec.json.decode(data, type=dict[str, Any]).get("items"), node)
    except (msgspec.MsgspecError, slices.SliceError) as error:
        raise source_recording.RecordingError(
            f"{recording / SLICES_FILE}: {error}; give a ResourceSliceList in JSON"
        ) from error
    return slices.groups(devices, tree, frozenset(zone.id for zone in machine.nodes))


def _kubelet(recording: Path, sysfs: Path, config: Path | None) -> KubeletSettings:
    if config is not None:
        if not config.is_file():
            raise KubeletConfigError(f"{config}: no such file; check --kubelet-config")
        return _settings(config.parent, config) or KubeletSettings()
    for folder in (recording, recording.parent, sysfs.parent):
        settings = _settings(folder, _config(folder))
        if settings is not None:
            return settings
    return KubeletSettings()


def _settings(folder: Path, config: Path | None) -> KubeletSettings | None:
    """Return the settings by the sources in a folder, or None if it has none."""
    if config is None and (folder / "etc").is_dir():
        places = kubelet_sources.Places(str(folder / "var/lib/kubelet"), str(folder))
        return kubelet_sources.KubeletSources(places).read()
    documents = [(str(config), document(config.read_bytes(), str(config)))] if config else []
    documents += [(str(path), document(path.read_bytes(), str(path))) for path in _drop_ins(folder)]
    flags = list(_flags(folder))
    arguments = _command_line(folder)
    if arguments is not None:
        started_with = kubelet_sources.parse_flags(arguments)
        embedded = kubelet_sources.kubelet_arguments(arguments)
        if embedded:
            started_with = kubelet_sources.parse_flags(f"--{value}" for value in embedded)
        flags.append((kubelet_sources.COMMAND_LINE, started_with))
    if not documents and not flags and arguments is None:
        return None
    unread = () if arguments is not None else (kubelet_sources.COMMAND_LINE,)
    return merged(documents, flags, unread)


def _command_line(folder: Path) -> list[str] | None:
    """Return the command line in a copy of /proc, or of its file cmdline."""
    for path in sorted(folder.glob(COMMAND_FILES)):
        text = (folders.read_bounded(path) or b"").decode("utf-8", "replace")
        return text.replace("\0", " ").split()
    return kubelet_sources.command_line(str(folder / "proc"))


def _config(folder: Path) -> Path | None:
    for name in CONFIG_FILES:
        path = folder / name
        text = folders.read_bounded(path)
        if text is not None and not kubelet_sources.is_other_file(text):
            return path
    return None


def _drop_ins(folder: Path) -> Iterator[Path]:
    for subfolder in sorted(folder.glob("*.d")):
        if not subfolder.name.endswith(".service.d"):
            for path in sorted(subfolder.glob("*.conf")):
                if not kubelet_sources.is_other_file(path.read_bytes()):
                    yield path


def _flags(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    units = [*sorted(folder.glob("*.service")), *sorted(folder.glob("*.service.d/*.conf"))]
    loose = [path for path in sorted(folder.glob("*.conf")) if b"[Service]" in path.read_bytes()]
    texts = [path.read_text("utf-8", "replace") for path in (*units, *loose)]
    if texts:
        yield "kubelet.service", kubelet_sources.unit_flags(texts)
    for name in FLAG_FILES:
        data = folders.read_bounded(folder / name)
        if data is not None:
            yield name, kubelet_sources.flags_in(data.decode("utf-8", "replace"))
    paths = (*sorted(folder.glob("*.yaml")), *sorted(folder.glob("*.yaml.d/*.yaml")))
    flags = kubelet_sources.rancher_flags((str(path), path.read_bytes()) for path in paths)
    if flags:
        yield kubelet_sources.KUBELET_ARG, flags
