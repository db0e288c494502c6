"""`topolog admit`: show whether a kubelet would admit pods, and on which zones. `--describe` prints
this host as a machine file.

Reads files, asks the kubelet model, prints. As in the kubelet, the Topology Manager with its
resource managers decides first, and the node-level check (OutOfcpu and the like) runs after it,
under every policy.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import yaml

from services.cli import pod_files
from services.cli.admit_notes import shared_cpus, what_pins
from services.cli.admit_rows import as_object, as_rows
from services.cli.machine_describe import describe, without_memory
from services.cli.machine_file import MachineFile, parse_machine
from services.cli.output import (
    EXIT_REJECTED,
    EXIT_USAGE,
    CommandError,
    json_line,
    say,
    say_table,
    say_verbatim,
)
from services.cli.paths import STDIN, path_option
from services.cli.pod_files import MAX_PODS, WrongManifest
from services.exporter.folders import FolderTree
from services.exporter.kubelet_config import MAX_FILE_BYTES as MAX_CONFIG_BYTES
from services.exporter.kubelet_config import KubeletConfigError
from services.exporter.kubelet_sources import KubeletSources, Places
from services.exporter.sysfs import SysfsError, read_machine
from shared.domain import yaml_text
from shared.domain.effective import effective_request
from shared.domain.manifest import ManifestError
from shared.domain.pod import Pod
from shared.domain.resources import Amounts, is_device
from shared.kubelet.admission import Admission, ConfigError, admit, build, remove, start_containers
from shared.kubelet.machine import KubeletState
from shared.kubelet.node_level import shortage
from shared.telemetry.reasons import plain

# A file of pods may list all pods of a cluster.
MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_MACHINE_BYTES = 1024 * 1024
KUBELET_CONFIG = Path("/var/lib/kubelet/config.yaml")
HOST_SYSFS = Path("/sys")
HEADER = """\
# Machine for `topolog admit --machine FILE --pods PODS`, from this host's /sys and kubelet config.
# Devices are not in /sys; add them: devices: {vendor.example/gpu: [{id: gpu-0, zones: [0]}]}
"""


def register(app: typer.Typer) -> None:
    app.command("admit")(admit_command)


def admit_command(
    machine: Annotated[
        Path | None, path_option(help="Machine file (YAML); --describe prints one.")
    ] = None,
    pods: Annotated[
        Path | None,
        path_option(
            help="File of Pods, Deployments, Jobs and the like (YAML or JSON); - reads stdin."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line per pod.")] = False,
    describe_host: Annotated[
        bool, typer.Option("--describe", help="Print this host as a machine file.")
    ] = False,
    sysfs: Annotated[Path, path_option(help="The /sys tree that --describe reads.")] = Path("/sys"),
    kubelet_config: Annotated[
        Path, path_option(help="KubeletConfiguration that --describe reads if it exists.")
    ] = KUBELET_CONFIG,
) -> None:
    """Show whether a kubelet would admit pods, and on which zones.

    Admits the pods in order on one machine. Prints the CPUs, memory, devices and hint of each
    container, or the kubelet's rejection. The containers of an admitted pod start before the next
    pod is admitted. Exit code 3 if a pod is rejected.
    """
    if describe_host:
        say_verbatim(HEADER + described(sysfs, kubelet_config))
        return
    if machine is None or pods is None:
        raise CommandError(
            "admit needs --machine and --pods",
            "topolog admit --describe > machine.yaml",
            EXIT_USAGE,
        )
    setup = load_machine(machine)
    state = started(setup, machine)
    results = list(admitted_in_order(state, load_pods(pods), setup.allocatable()))
    show(results, setup, as_json)
    if not all(result.admission.admitted for result in results):
        raise typer.Exit(EXIT_REJECTED)


def described(sysfs: Path, kubelet_config: Path) -> str:
    """Return this host as YAML."""
    tree = FolderTree(sysfs)
    try:
        machine = read_machine(tree)
        document = describe(machine, tree, _configuration(sysfs, kubelet_config))
    except SysfsError as error:
        raise CommandError(f"{sysfs}: {error}", "name the tree with --sysfs", EXIT_USAGE) from error
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110)
    missing = "".join(
        f"# The memory of zone {zone} is unknown; add it to the zone, such as memory: 64Gi\n"
        for zone in without_memory(machine)
    )
    return missing + text


def _configuration(sysfs: Path, kubelet_config: Path) -> dict[str, Any]:
    """Return the kubelet's settings: on this host with its flags and drop-in files."""
    configuration: Any = {}
    if kubelet_config.is_file():
        configuration = next(iter(_documents(kubelet_config, MAX_CONFIG_BYTES)), {})
    if not isinstance(configuration, dict):
        raise CommandError(
            f"{kubelet_config}: is no KubeletConfiguration",
            "name another file with --kubelet-config",
            EXIT_USAGE,
        )
    if sysfs != HOST_SYSFS or kubelet_config != KUBELET_CONFIG:
        return configuration
    try:
        places = Places(kubelet_dir=str(kubelet_config.parent), proc="/proc")
        return KubeletSources(places).content()
    except KubeletConfigError as error:
        raise CommandError(str(error), "name the file with --kubelet-config", EXIT_USAGE) from error


def load_machine(path: Path) -> MachineFile:
    """Return the machine at `path`. Raises CommandError with field, value and remedy."""
    documents = _documents(path, MAX_MACHINE_BYTES)
    if len(documents) != 1:
        raise CommandError(
            f"{path}: has {len(documents)} YAML documents", "write one machine per file", EXIT_USAGE
        )
    parsed = parse_machine(documents[0])
    if isinstance(parsed, ManifestError):
        raise _wrong(path, parsed, "compare with: topolog admit --describe")
    return parsed


def started(setup: MachineFile, path: Path) -> KubeletState:
    """Return the kubelet on its empty machine. Raises CommandError with the kubelet's message."""
    built = build(setup.machine, setup.kubelet, setup.devices)
    if isinstance(built, ConfigError) and built.is_model_limit:
        remedy = "describe only the zones with CPUs and devices, or ask a kubelet on the machine"
        raise CommandError(f"{path}: not judged: {built.message}", remedy, EXIT_USAGE)
    if isinstance(built, ConfigError):
        remedy = (
            "correct the fields under `kubelet:` "
            "(reservedSystemCPUs, reservedMemory and policies must fit the zones)"
        )
        raise CommandError(f"{path}: kubelet: would not start: {built.message}", remedy, EXIT_USAGE)
    return built


def load_pods(path: Path) -> list[Pod]:
    """Return the pods of a file in order: documents, or items of a List. Raises CommandError with
    field, value and remedy.
    """
    result = pod_files.read(_documents(path))
    if isinstance(result, WrongManifest):
        number = result.number
        raise _wrong(
            path, result.error, f"correct document {number} of the file", f"document {number}: "
        )
    for skipped in result.skipped:
        say(f"{skipped} has no pods and is skipped", to=sys.stderr)
    pods = list(result.pods)
    duplicates = [uid for uid, count in Counter(pod.uid for pod in pods).items() if count > 1]
    if duplicates:
        raise CommandError(
            f"{path}: metadata.name: {duplicates[0]!r} is used twice",
            "give each pod a unique name",
            EXIT_USAGE,
        )
    if not pods or len(pods) > MAX_PODS:
        raise CommandError(
            f"{path}: has {len(pods)} pods",
            f"write 1 to {MAX_PODS} pods, separated by ---",
            EXIT_USAGE,
        )
    return pods


class Result(NamedTuple):
    """The kubelet's answer to one pod. `note` says why nothing is pinned, or what keeps it out."""

    pod: Pod
    admission: Admission
    note: str = ""


def admitted_in_order(
    state: KubeletState, pods: list[Pod], allocatable: Amounts
) -> Iterator[Result]:
    """Yield the answer to each pod. An admitted pod's containers start before the next pod."""
    running: list[Pod] = []
    for pod in pods:
        admission = admit(state, pod)
        note = shared_cpus(pod, state) if admission.admitted else what_pins(pod, state)
        short = shortage(allocatable, running, pod) if admission.admitted else None
        if short is not None:
            note = ""
            admission = Admission(
                remove(admission.state, pod.uid), False, short.reason, short.message
            )
        state = admission.state
        if admission.admitted:
            state = start_containers(state, pod)
            running.append(pod)
        yield Result(pod, admission, note)


def show(results: list[Result], setup: MachineFile, as_json: bool) -> None:
    """Print the answers, and what the kubelet left undone."""
    aligned = setup.kubelet.topology_policy != "none"
    if as_json:
        for pod, admission, note in results:
            row = as_object(pod, admission, aligned, not_offered(pod, setup))
            json_line({**row, "note": note} if note else row)
        return
    columns = ("pod", "result", "container", "zones", "cpus", "memory", "devices")
    say_table(
        columns, [row for pod, admission, _ in results for row in as_rows(pod, admission, aligned)]
    )
    for pod, admission, note in results:
        if not admission.admitted:
            say(f"{pod.key} rejected: {admission.reason}: {admission.message}")
        if note:
            say(f"{pod.key}: {note}")
        for resource in not_offered(pod, setup):
            say(
                f"{pod.key} requests {resource}, which no device plugin of this machine offers; "
                "the kubelet ignores it"
            )
    if not aligned:
        say("Topology Manager policy none: nothing is aligned to a zone")


def not_offered(pod: Pod, setup: MachineFile) -> list[str]:
    """Return the requested extended resources that the machine has no devices for. The kubelet
    leaves them to the scheduler.
    """
    return [
        name for name in effective_request(pod) if is_device(name) and name not in setup.devices
    ]


def _wrong(path: Path, error: ManifestError, remedy: str, prefix: str = "") -> CommandError:
    return CommandError(f"{path}: {prefix}{error}", remedy, EXIT_USAGE)


def _documents(path: Path, max_bytes: int = MAX_FILE_BYTES) -> list[Any]:
    """Return the file's YAML documents. The size is limited because parsing some megabytes of wrong
    YAML takes minutes.
    """
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == STDIN else path.open("rb") as file:
            raw = file.read(max_bytes + 1)
    except OSError as error:
        raise CommandError(
            f"{path}: {plain(error).partition(':')[0]}", "name a readable file", EXIT_USAGE
        ) from error
    if len(raw) > max_bytes:
        raise CommandError(
            f"{path}: more than {max_bytes} bytes",
            f"name a file of at most {max_bytes} bytes",
            EXIT_USAGE,
        )
    try:
        return [document for document in yaml_text.documents(raw) if document is not None]
    except (yaml_text.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise CommandError(
            f"{path}: is no YAML: {reason}", "check indentation and quotes", EXIT_USAGE
        ) from error
