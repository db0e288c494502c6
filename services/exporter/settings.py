"""Settings of the exporter: nodes, bus, intervals, exclusions.

They come from flags (`flags`), environment (TOPOLOG_*) and file; all mistakes are reported at once.
Must not know how a scan is made or where a report goes.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from services.exporter import globs, metrics_port
from services.exporter.core import PodPattern, Rules
from services.exporter.kubelet_sources import Places
from services.exporter.metrics_port import CERTS_DIR, MetricsTls, Mode
from shared.domain.policies import Policy, Scope
from shared.runtime.settings import CommonSettings, HttpTls

DEFAULT_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
HOST_PROC = "/proc"
MAX_NODES = 2_000
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]*")
# Prefix of a folder of recorded answers in the place of a socket, as in RTE.
FAKE = "fake://"
# Prefix of a container runtime's socket, which releases before 0.2 read.
CRI = "cri://"
# NFD's topology-updater writes every namespace so; the empty namespace means the same.
EVERY_NAMESPACE = "*"
# The kernel's limit for the path of a unix socket.
MAX_SOCKET_BYTES = 107
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Interval = Annotated[float, msgspec.Meta(ge=0.1, le=86_400)]


class NodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node: its podresources socket, the root of its /sys tree, and its kubelet's folder.

    The folder has configuration and checkpoints, and is watched for changes; it is optional, as is
    the folder with an agent's statement.
    """

    name: str
    socket: str
    sysfs: str = "/sys"
    kubelet_dir: str = ""
    agent_dir: str = ""


class ExporterSettings(CommonSettings, frozen=True, kw_only=True):
    """All settings; times in seconds. docs/exporter.md describes them by their flags.

    `nodes` are texts NAME=SOCKET,SYSFS[,KUBELET_DIR]; `nodes_file` is a JSON list of `NodeSpec`;
    `node_name` alone means this machine's kubelet. `interval_s` is the time between full reports,
    `machine_interval_s` between reads of /sys and of the kubelet's settings, `active_interval_s`
    between lists of pods without a kubelet folder to watch (0: only at full reports). Without
    `report_on_change` there are only the full reports, and those that `notify_file` triggers.
    `watch_interval_s` between looks at the kubelet's files without inotify (0: never). Changes
    cause at most `max_events_per_time_unit` scans (0: no limit) in `time_unit_to_limit_events_s`,
    each `settle_s` after the change, and one `trailing_s` after the last. `host_proc` and
    `host_root` are mounts of the node's /proc and file system.
    """

    nodes: tuple[str, ...] = ()
    nodes_file: str = ""
    node_name: str = ""
    podresources_socket: str = DEFAULT_SOCKET
    sysfs: str = "/sys"
    kubelet_dir: str = ""
    agent_dir: str = ""
    host_proc: str = ""
    host_root: str = ""
    interval_s: Interval = 10.0
    machine_interval_s: Seconds = 60.0
    watch_interval_s: Seconds = 0.25
    active_interval_s: Seconds = 1.0
    report_on_change: bool = True
    notify_file: str = ""
    max_events_per_time_unit: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 10
    time_unit_to_limit_events_s: Interval = 1.0
    settle_s: Seconds = 0.03
    trailing_s: Seconds = 0.25
    deadline_s: Interval = 10.0
    kubelet_config: str = ""
    kubelet_config_dir: str = ""
    kubelet_config_uri: str = ""
    kubelet_ca_file: str = ""
    kubelet_token_file: str = ""
    kubelet_version: str = ""
    boot_id_file: str = ""
    topology_manager_policy: Literal[""] | Policy = ""
    topology_manager_scope: Literal[""] | Scope = ""
    config_root: str = ""
    oneshot: bool = False
    no_publish: bool = False
    publish: tuple[Literal["bus", "nrt"], ...] = ("bus",)
    kubeconfig: str = ""
    add_nrt_owner: bool = True
    watch_namespace: str = ""
    pods_fingerprint: bool = True
    pods_fingerprint_status_file: str = ""
    pods_fingerprint_method: Literal["with-exclusive-resources", "all"] = "with-exclusive-resources"
    exclude_resources: tuple[str, ...] = ()
    exclude_pods: tuple[str, ...] = ()
    metrics_mode: Mode = "http"
    metrics_certs_dir: str = CERTS_DIR
    metrics_cert_file: str = "tls.crt"
    metrics_key_file: str = "tls.key"
    metrics_want_cli_auth: bool = False
    podreadiness: bool = False
    dra_slices: bool = False
    device_objects: bool = False
    pod_namespace: str = ""
    pod_name: str = ""

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise ValueError("\n    ".join(problems))

    def tls(self) -> HttpTls:
        """Return the HTTP port's TLS, by RTE's options if they are set."""
        files = MetricsTls(
            self.metrics_certs_dir,
            self.metrics_cert_file,
            self.metrics_key_file,
            self.metrics_want_cli_auth,
        )
        return metrics_port.tls(self.metrics_mode, files, self.http_tls)

    @property
    def writes_objects(self) -> bool:
        """Return True if NodeResourceTopology objects are written."""
        return "nrt" in self.publish and not self.no_publish

    @property
    def rules(self) -> Rules:
        """Return the exclusions of reports, and the method of their fingerprint."""
        excluded = tuple(PodPattern(*text.split("/")) for text in self.exclude_pods)
        method = self.pods_fingerprint_method if self.pods_fingerprint else ""
        namespace = "" if self.watch_namespace == EVERY_NAMESPACE else self.watch_namespace
        return Rules(method, frozenset(self.exclude_resources), excluded, namespace)

    def places(self, spec: NodeSpec) -> Places:
        """Return where the settings of a node's kubelet are.

        /proc and the file system of this machine are the node's only if the exporter has one node;
        the kubelets of several are simulated.
        """
        alone = not self.nodes and not self.nodes_file
        return Places(
            kubelet_dir=spec.kubelet_dir,
            root=self.host_root or ("" if alone else spec.kubelet_dir),
            proc=self.host_proc or (HOST_PROC if alone else ""),
            config=self.kubelet_config,
            config_dir=self.kubelet_config_dir,
        )

    def specs(self) -> tuple[NodeSpec, ...]:
        """Return the nodes to report. Raises ValueError."""
        listed = [parse_node(text) for text in self.nodes]
        if self.nodes_file:
            listed += _nodes_file(Path(self.nodes_file))
        if not listed and self.node_name:
            listed = [
                NodeSpec(
                    self.node_name,
                    self.podresources_socket,
                    self.sysfs,
                    self.kubelet_dir,
                    self.agent_dir,
                )
            ]
        return tuple(listed)


def parse_node(text: str) -> NodeSpec:
    """Parse `NAME=SOCKET,SYSFS[,KUBELET_DIR]`. Raises ValueError."""
    name, equals, rest = text.partition("=")
    parts = rest.split(",")
    if not equals or not name or not 1 <= len(parts) <= 3 or not all(parts):
        raise ValueError(
            f"--node {text!r}: expected NAME=SOCKET,SYSFS or NAME=SOCKET,SYSFS,KUBELET_DIR"
        )
    return NodeSpec(name, *parts)


def _is_pair(text: str) -> bool:
    return text.count("/") == 1 and all(map(globs.compiled, text.split("/")))


def _problems(settings: ExporterSettings) -> list[str]:
    """Return one sentence for each mistake that no single value shows."""
    problems = [
        f"--exclude-pod {text!r}: expected NAMESPACE_PATTERN/NAME_PATTERN, for example "
        "kube-system/*"
        for text in settings.exclude_pods
        if not _is_pair(text)
    ]
    if settings.kubelet_config_uri and not settings.kubelet_config_uri.startswith("https://"):
        problems.append(
            f"--kubelet-config-uri {settings.kubelet_config_uri!r}: expected "
            "https://ADDRESS:10250/configz; for a file use --kubelet-config"
        )
    problems += _rte_problems(settings)
    if not settings.publish:
        problems.append("--publish: empty; give bus, nrt or both, or --no-publish")
    try:
        specs = settings.specs()
    except ValueError as error:
        return [*problems, str(error)]
    names = [spec.name for spec in specs]
    if settings.pods_fingerprint_status_file and len(names) > 1:
        problems.append(
            "--pods-fingerprint-status-file: one file for several nodes; use it with one node only"
        )
    if not 1 <= len(names) <= MAX_NODES:
        problems.append(
            f"{len(names)} nodes given; give 1 to {MAX_NODES} by --node, --nodes-file or NODE_NAME"
        )
    twice = sorted(names) if len(set(names)) != len(names) else []
    doubled = sorted({name for name, following in pairwise(twice) if name == following})
    problems += [f"node {name}: given more than once; give each node once" for name in doubled]
    return problems + [problem for spec in specs for problem in _node_problems(spec)]


def _rte_problems(settings: ExporterSettings) -> list[str]:
    problems = []
    if (
        settings.metrics_want_cli_auth
        and settings.metrics_mode == "http"
        and not settings.http_tls.client_ca
    ):
        problems.append(
            "--metrics-want-cli-auth: client certificates need TLS; add --metrics-mode=httptls"
        )
    if settings.podreadiness and not (settings.pod_name and settings.pod_namespace):
        problems.append(
            "--podreadiness: the exporter's pod is unknown; set REFERENCE_NAMESPACE and "
            "REFERENCE_POD_NAME by the downward API (k8s/components/exporter-readiness), or give "
            "--podreadiness=false"
        )
    return problems


def _node_problems(spec: NodeSpec) -> list[str]:
    problems = []
    if len(spec.name) > 253 or not _NAME.fullmatch(spec.name):
        problems.append(
            f"node {spec.name!r}: not a node name; use up to 253 letters, digits, '-', '_' and '.'"
        )
    if spec.socket.startswith(CRI):
        problems.append(
            f"node {spec.name}: {spec.socket}: the exporter no longer reads container runtimes; "
            f"give the kubelet's podresources socket (--podresources-socket {DEFAULT_SOCKET})"
        )
    size = len(spec.socket.encode())
    if not spec.socket.startswith(FAKE) and size > MAX_SOCKET_BYTES:
        problems.append(
            f"node {spec.name}: its socket path has {size} bytes, the kernel allows "
            f"{MAX_SOCKET_BYTES}; use a shorter path"
        )
    return problems


def _nodes_file(path: Path) -> list[NodeSpec]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[NodeSpec])
    except (OSError, msgspec.MsgspecError) as error:
        raise ValueError(
            f"--nodes-file {path}: {error}; expected JSON "
            "[{name, socket, sysfs, kubelet_dir, agent_dir}]"
        ) from error
