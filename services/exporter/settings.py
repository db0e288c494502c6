"""What the exporter is told: nodes, bus, intervals, rules. Every mistake is named at once, with its remedy.

From flags, a nodes file and the environment. Must not know how a scan is made or where a report goes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from services.exporter.core import METHODS, PodPattern, Rules
from services.exporter.kubelet_config import POLICIES, SCOPES

DEFAULT_NATS_URL = "nats://127.0.0.1:4222"
DEFAULT_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
DEFAULT_INTERVAL_S = 10.0
MAX_NODES = 2_000
MAX_SOCKET_BYTES = 107
"""The kernel's limit for the path of a unix socket."""


class SettingsError(ValueError):
    """One or more settings are wrong; the message has one line for each."""


class NodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node to report: its podresources socket, the root of its /sys tree, and where known its kubelet's folder
    (configuration, checkpoints; watched for changes)."""

    name: str
    socket: str
    sysfs: str = "/sys"
    kubelet_dir: str = ""


class Settings(msgspec.Struct, frozen=True):
    """All settings; times in seconds. `policy` and `scope` override the kubelet's configuration file when set."""

    nodes: tuple[NodeSpec, ...]
    nats_url: str = DEFAULT_NATS_URL
    interval_s: float = DEFAULT_INTERVAL_S
    watch_interval_s: float = 0.25
    min_gap_s: float = 0.25
    settle_s: float = 0.05
    deadline_s: float = 10.0
    http_port: int = 0
    kubelet_config: str = ""
    boot_id_file: str = ""
    policy: str = ""
    scope: str = ""
    rules: Rules = Rules()


def parse(argv: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """The settings of a command line. Raises SettingsError with every problem; `--help` exits."""
    given = _parser().parse_args(list(argv))
    problems: list[str] = []
    nodes = _nodes(given, environment, problems)
    excluded = _excluded_pods(given.exclude_pod, problems)
    settings = Settings(
        nodes=nodes,
        nats_url=given.nats_url or environment.get("TOPOLOG_NATS_URL") or DEFAULT_NATS_URL,
        interval_s=given.interval,
        watch_interval_s=given.watch_interval,
        min_gap_s=given.min_gap,
        deadline_s=given.deadline,
        http_port=given.http_port,
        kubelet_config=given.kubelet_config,
        boot_id_file=given.boot_id_file,
        policy=given.topology_manager_policy,
        scope=given.topology_manager_scope,
        rules=Rules(given.pods_fingerprint_method, frozenset(given.exclude_resource), excluded),
    )
    problems += check(settings)
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def check(settings: Settings) -> list[str]:
    """Every problem of the settings, one sentence each."""
    problems = [problem for spec in settings.nodes for problem in _node_problems(spec)]
    names = [spec.name for spec in settings.nodes]
    problems += [f"node {name}: given {names.count(name)} times; give each node once" for name in _twice(names)]
    if not 1 <= len(names) <= MAX_NODES:
        problems.append(f"{len(names)} nodes given; give 1 to {MAX_NODES} with --node or --nodes-file")
    for flag, value, low in (
        ("--interval", settings.interval_s, 0.1),
        ("--watch-interval", settings.watch_interval_s, 0.0),
        ("--min-gap", settings.min_gap_s, 0.0),
        ("--deadline", settings.deadline_s, 0.1),
    ):
        if not low <= value <= 86_400:
            problems.append(f"{flag} is {value:g}; give seconds from {low:g} to 86400")
    if not 0 <= settings.http_port <= 65_535:
        problems.append(f"--http-port is {settings.http_port}; give 0 (off) to 65535")
    return problems


def parse_node(text: str) -> NodeSpec:
    """`NAME=SOCKET,SYSFS[,KUBELET_DIR]`. Raises ValueError."""
    name, found, rest = text.partition("=")
    parts = rest.split(",")
    if not found or not name or not 1 <= len(parts) <= 3 or not all(parts):
        raise ValueError(f"--node {text!r}: expected NAME=SOCKET,SYSFS or NAME=SOCKET,SYSFS,KUBELET_DIR")
    return NodeSpec(name, parts[0], parts[1] if len(parts) > 1 else "/sys", parts[2] if len(parts) > 2 else "")


def _node_problems(spec: NodeSpec) -> list[str]:
    problems = []
    if not 0 < len(spec.name) <= 253 or not spec.name.isprintable() or set(spec.name) & set(" */>"):
        problems.append(f"node {spec.name!r}: is no node name; use up to 253 letters, digits, '-' and '.'")
    size = len(spec.socket.encode())
    if size > MAX_SOCKET_BYTES:
        problems.append(f"node {spec.name}: socket path has {size} bytes, the kernel allows {MAX_SOCKET_BYTES}")
    return problems


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1}) if len(set(names)) != len(names) else []


def _nodes(given: argparse.Namespace, environment: Mapping[str, str], problems: list[str]) -> tuple[NodeSpec, ...]:
    nodes: list[NodeSpec] = []
    for text in given.node:
        try:
            nodes.append(parse_node(text))
        except ValueError as error:
            problems.append(str(error))
    if given.nodes_file:
        nodes += _nodes_file(Path(given.nodes_file), problems)
    name = environment.get("NODE_NAME", "")
    if not nodes and not problems and name:
        nodes.append(NodeSpec(name, given.podresources_socket, given.sysfs, given.kubelet_dir))
    return tuple(nodes)


def _nodes_file(path: Path, problems: list[str]) -> list[NodeSpec]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[NodeSpec])
    except (OSError, msgspec.MsgspecError) as error:
        problems.append(f"--nodes-file {path}: {error}; expected JSON [{{name, socket, sysfs, kubelet_dir}}]")
        return []


def _excluded_pods(texts: list[str], problems: list[str]) -> tuple[PodPattern, ...]:
    for text in texts:
        if text.count("/") != 1:
            problems.append(f"--exclude-pod {text!r}: expected NAMESPACE_PATTERN/NAME_PATTERN, for example kube-system/*")
    return tuple(PodPattern(*text.split("/")) for text in texts if text.count("/") == 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("topolog-exporter", description="Reports NUMA zones of nodes from podresources.")
    parser.add_argument("--node", action="append", default=[], metavar="NAME=SOCKET,SYSFS[,KUBELET_DIR]")
    parser.add_argument("--nodes-file", default="", help="JSON list of {name, socket, sysfs, kubelet_dir}")
    parser.add_argument("--podresources-socket", default=DEFAULT_SOCKET, help="with NODE_NAME set and no --node")
    parser.add_argument("--sysfs", default="/sys", help="with NODE_NAME set and no --node")
    parser.add_argument("--kubelet-dir", default="", help="with NODE_NAME set and no --node")
    parser.add_argument("--nats-url", default="", help=f"else TOPOLOG_NATS_URL, else {DEFAULT_NATS_URL}")
    parser.add_argument("--interval", type=float, default=DEFAULT_INTERVAL_S, help="seconds between full reports")
    parser.add_argument(
        "--watch-interval", type=float, default=0.25, help="seconds between looks at the kubelet's folder; 0: off"
    )
    parser.add_argument("--min-gap", type=float, default=0.25, help="least seconds between two scans of a node")
    parser.add_argument("--deadline", type=float, default=10.0, help="seconds until a podresources call is given up")
    parser.add_argument("--http-port", type=int, default=0, help="health and metrics; 0: off")
    parser.add_argument("--kubelet-config", default="", help="KubeletConfiguration file, else KUBELET_DIR/config.yaml")
    parser.add_argument("--boot-id-file", default="", help="else SYSFS/boot_id, else the kernel's")
    parser.add_argument("--topology-manager-policy", default="", choices=("", *POLICIES))
    parser.add_argument("--topology-manager-scope", default="", choices=("", *SCOPES))
    parser.add_argument("--pods-fingerprint-method", default=METHODS[0], choices=METHODS)
    parser.add_argument("--exclude-resource", action="append", default=[], metavar="RESOURCE")
    parser.add_argument("--exclude-pod", action="append", default=[], metavar="NAMESPACE/NAME", help="shell patterns")
    return parser
