"""`topolog admit`: would this kubelet take these pods, and where? And `--describe`: this host as a
machine file.

Reads files, asks the kubelet model, prints. As in the kubelet, the Topology Manager with its
resource managers speaks first, the node-level check (OutOfcpu and the like) after it, whatever the
policy.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from services.cli import pod_files
from services.cli.admit_rows import as_rows, as_verdict
from services.cli.machine_describe import describe
from services.cli.machine_file import MachineFile, parse_machine
from services.cli.output import EXIT_REJECTED, EXIT_USAGE, CommandError, console, json_line, table
from services.cli.pod_files import MAX_PODS, WrongManifest
from services.exporter.folders import FolderTree
from services.exporter.kubelet_config import MAX_FILE_BYTES as MAX_CONFIG_BYTES
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

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Of pods, which may be all of a cluster's."""
MAX_MACHINE_BYTES = 1024 * 1024
KUBELET_CONFIG = Path("/var/lib/kubelet/config.yaml")
HEADER = """\
# A machine for `topolog admit --machine FILE --pods PODS`, made from this host's /sys and kubelet configuration.
# Devices are not in /sys; add them: devices: {vendor.example/gpu: [{id: gpu-0, zones: [0]}]}
"""


def register(app: typer.Typer) -> None:
    """Mount the verb."""
    app.command("admit")(admit_command)


def admit_command(
    machine: Annotated[
        Path | None, typer.Option(help="The machine, a YAML file; --describe prints one.")
    ] = None,
    pods: Annotated[
        Path | None,
        typer.Option(
            help="Pods, Deployments, Jobs and the like, YAML or JSON, one or many; - reads standard input."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, one for each pod.")] = False,
    describe_host: Annotated[
        bool, typer.Option("--describe", help="Print this host as a machine file.")
    ] = False,
    sysfs: Annotated[Path, typer.Option(help="The /sys tree that --describe reads.")] = Path(
        "/sys"
    ),
    kubelet_config: Annotated[
        Path, typer.Option(help="The KubeletConfiguration that --describe reads, if it is there.")
    ] = KUBELET_CONFIG,
) -> None:
    """Admit pods in order on one machine: per container CPUs, memory, devices and hint, or the
    kubelet's refusal.

    The containers of an admitted pod are started before the next pod comes. Exit code 3 when a pod
    is rejected.
    """
    if describe_host:
        typer.echo(HEADER + described(sysfs, kubelet_config), nl=False)
        return
    if machine is None or pods is None:
        raise CommandError(
            "admit needs --machine and --pods",
            "topolog admit --describe > machine.yaml",
            EXIT_USAGE,
        )
    setup = load_machine(machine)
    state = started(setup, machine)
    verdicts = list(admitted_in_order(state, load_pods(pods), setup.allocatable()))
    show(verdicts, setup, as_json)
    if not all(verdict.admitted for _, verdict in verdicts):
        raise typer.Exit(EXIT_REJECTED)


def described(sysfs: Path, kubelet_config: Path) -> str:
    """This host as YAML."""
    tree = FolderTree(sysfs)
    configuration: Any = (
        next(iter(_documents(kubelet_config, MAX_CONFIG_BYTES)), {})
        if kubelet_config.is_file()
        else {}
    )
    if not isinstance(configuration, dict):
        raise CommandError(
            f"{kubelet_config}: is no KubeletConfiguration",
            "name another with --kubelet-config",
            EXIT_USAGE,
        )
    try:
        document = describe(read_machine(tree), tree, configuration)
    except SysfsError as error:
        raise CommandError(f"{sysfs}: {error}", "name the tree with --sysfs", EXIT_USAGE) from error
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110)


def load_machine(path: Path) -> MachineFile:
    """The machine file at `path`. CommandError names field, value and remedy."""
    documents = _documents(path, MAX_MACHINE_BYTES)
    if len(documents) != 1:
        raise CommandError(
            f"{path}: holds {len(documents)} documents", "write one machine in one file", EXIT_USAGE
        )
    parsed = parse_machine(documents[0])
    if isinstance(parsed, ManifestError):
        raise _wrong(path, parsed, "compare with: topolog admit --describe")
    return parsed


def started(setup: MachineFile, path: Path) -> KubeletState:
    """The kubelet on its empty machine. CommandError holds the kubelet's own words."""
    built = build(setup.machine, setup.kubelet, setup.devices)
    if isinstance(built, ConfigError):
        remedy = "correct the fields under `kubelet:` (reservedSystemCPUs, reservedMemory and policies must fit the zones)"
        raise CommandError(f"{path}: kubelet: would not start: {built.message}", remedy, EXIT_USAGE)
    return built


def load_pods(path: Path) -> list[Pod]:
    """The pods of a file, in order: documents, or items of a List. CommandError names field, value
    and remedy.
    """
    found = pod_files.read(_documents(path))
    if isinstance(found, WrongManifest):
        at = found.number
        raise _wrong(path, found.error, f"correct document {at} of the file", f"document {at}: ")
    for passed in found.passed_over:
        typer.echo(f"{passed} holds no pods and is passed over", err=True)
    pods = list(found.pods)
    twice = [uid for uid, count in Counter(pod.uid for pod in pods).items() if count > 1]
    if twice:
        raise CommandError(
            f"{path}: metadata.name: {twice[0]!r} is there twice",
            "give each pod a name of its own",
            EXIT_USAGE,
        )
    if not pods or len(pods) > MAX_PODS:
        raise CommandError(
            f"{path}: holds {len(pods)} pods",
            f"write 1 to {MAX_PODS} pods, separated by ---",
            EXIT_USAGE,
        )
    return pods


def admitted_in_order(
    state: KubeletState, pods: list[Pod], allocatable: Amounts
) -> Iterator[tuple[Pod, Admission]]:
    """Each pod with the kubelet's verdict; an admitted pod's containers start before the next pod
    comes.
    """
    running: list[Pod] = []
    for pod in pods:
        verdict = admit(state, pod)
        short = shortage(allocatable, running, pod) if verdict.admitted else None
        if short is not None:
            verdict = Admission(remove(verdict.state, pod.uid), False, short.reason, short.message)
        state = verdict.state
        if verdict.admitted:
            state = start_containers(state, pod)
            running.append(pod)
        yield pod, verdict


def show(verdicts: list[tuple[Pod, Admission]], setup: MachineFile, as_json: bool) -> None:
    """Print the verdicts, and what the kubelet left undone."""
    aligned = setup.kubelet.topology_policy != "none"
    if as_json:
        for pod, verdict in verdicts:
            json_line(as_verdict(pod, verdict, aligned, not_offered(pod, setup)))
        return
    columns = ("pod", "verdict", "container", "zones", "cpus", "memory", "devices")
    rows = [row for pod, verdict in verdicts for row in as_rows(pod, verdict, aligned)]
    console().print(table("", columns, rows))
    for pod, verdict in verdicts:
        if not verdict.admitted:
            typer.echo(f"{pod.key} rejected: {verdict.reason}: {verdict.message}")
        for resource in not_offered(pod, setup):
            typer.echo(
                f"{pod.key} asks for {resource}, which no device plugin of this machine offers; the kubelet ignores it"
            )
    if not aligned:
        typer.echo("Topology Manager policy none: nothing was aligned to a zone")


def not_offered(pod: Pod, setup: MachineFile) -> list[str]:
    """Extended resources that the machine has no devices for. The kubelet leaves them to the
    scheduler.
    """
    return [
        name for name in effective_request(pod) if is_device(name) and name not in setup.devices
    ]


def _wrong(path: Path, error: ManifestError, remedy: str, prefix: str = "") -> CommandError:
    return CommandError(f"{path}: {prefix}{error}", remedy, EXIT_USAGE)


def _documents(path: Path, most_bytes: int = MAX_FILE_BYTES) -> list[Any]:
    """The file's YAML, as far as it is no longer than it should be: a wrong one of some megabytes
    takes minutes.
    """
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            raw = file.read(most_bytes + 1)
    except OSError as error:
        raise CommandError(
            f"{path}: {plain(error).partition(':')[0]}", "name a file that can be read", EXIT_USAGE
        ) from error
    if len(raw) > most_bytes:
        raise CommandError(
            f"{path}: more than {most_bytes} bytes",
            f"name a file of at most {most_bytes} bytes",
            EXIT_USAGE,
        )
    try:
        return [document for document in yaml_text.documents(raw) if document is not None]
    except (yaml_text.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise CommandError(
            f"{path}: is no YAML: {reason}", "check indentation and quotes", EXIT_USAGE
        ) from error
