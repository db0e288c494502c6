"""What the exporter is told: nodes, bus, intervals, rules. Flags, environment (TOPOLOG_*) and file;
every mistake at once.

Must not know how a scan is made or where a report goes.
"""

from __future__ import annotations

import argparse
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from services.exporter import foreign_flags, globs, metrics_port
from services.exporter.core import METHODS, PodPattern, Rules
from services.exporter.durations import duration_s
from services.exporter.metrics_port import CERTS_DIR, MetricsTls, Mode
from shared.domain.policies import POLICIES, SCOPES, Policy, Scope
from shared.runtime.settings import CommonSettings, HttpTls

DEFAULT_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
MAX_NODES = 2_000
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]*")
FAKE = "fake://"
"""Before a folder of recorded answers that stands for a socket, as in resource-topology-exporter."""
CRI = "cri://"
EVERY_NAMESPACE = "*"
"""As NFD's topology-updater calls it; the empty namespace is the same."""
MAX_SOCKET_BYTES = 107
"""The kernel's limit for the path of a unix socket."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Interval = Annotated[float, msgspec.Meta(ge=0.1, le=86_400)]


class NodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node to report: its podresources socket, the root of its /sys tree, and where known its
    kubelet's folder (configuration, checkpoints; watched for changes)."""

    name: str
    socket: str
    sysfs: str = "/sys"
    kubelet_dir: str = ""


class ExporterSettings(CommonSettings, frozen=True, kw_only=True):
    """All settings; times in seconds. `topology_manager_policy` and `_scope` override the kubelet's
    file when set.

    `nodes` are texts NAME=SOCKET,SYSFS[,KUBELET_DIR]; `nodes_file` is a JSON list of `NodeSpec`;
    `node_name` alone means this machine's kubelet. `interval_s` is the time between full reports,
    `machine_interval_s` between readings of /sys, `active_interval_s` between looks at the list of
    pods where no kubelet folder is watched (0: only at full reports), `watch_interval_s` between
    looks at the kubelet's files where there is no inotify (0: never). Changes make at most
    `max_events_per_time_unit` scans (0: no limit) in `time_unit_to_limit_events_s`, each `settle_s`
    after the change, and one `trailing_s` after the last. A change of `notify_file` counts for
    every node. What a kubelet's configuration says is asked of `kubelet_config_uri` (https) where
    that is set. `watch_namespace` accounts the pods of one namespace only, `oneshot` ends after one
    report of each node, `no_publish` reads and publishes nothing. `publish` names where reports go:
    to the bus, to NodeResourceTopology objects (through `kubeconfig`, empty inside a cluster), or
    both. `metrics_*` are
    resource-topology-exporter's words for `http_tls`. With `podreadiness` the conditions of the pod
    `pod_name` in `pod_namespace` say whether scans and publications succeed (through `kubeconfig`
    too), and with `dra_slices` the devices that drivers publish for claims are read from there and
    counted by zone.
    """

    nodes: tuple[str, ...] = ()
    nodes_file: str = ""
    node_name: str = ""
    podresources_socket: str = DEFAULT_SOCKET
    sysfs: str = "/sys"
    kubelet_dir: str = ""
    interval_s: Interval = 10.0
    machine_interval_s: Seconds = 60.0
    watch_interval_s: Seconds = 0.25
    active_interval_s: Seconds = 1.0
    notify_file: str = ""
    max_events_per_time_unit: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 10
    time_unit_to_limit_events_s: Interval = 1.0
    settle_s: Seconds = 0.03
    trailing_s: Seconds = 0.25
    deadline_s: Interval = 10.0
    kubelet_config: str = ""
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
    pod_namespace: str = ""
    pod_name: str = ""

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise ValueError("\n    ".join(problems))

    def tls(self) -> HttpTls:
        """The HTTP port's TLS, where resource-topology-exporter's options ask for it."""
        files = MetricsTls(
            self.metrics_certs_dir,
            self.metrics_cert_file,
            self.metrics_key_file,
            self.metrics_want_cli_auth,
        )
        return metrics_port.tls(self.metrics_mode, files, self.http_tls)

    @property
    def writes_objects(self) -> bool:
        """Whether NodeResourceTopology objects are written."""
        return "nrt" in self.publish and not self.no_publish

    @property
    def rules(self) -> Rules:
        """What reports leave out, and how their fingerprint is made."""
        excluded = tuple(PodPattern(*text.split("/")) for text in self.exclude_pods)
        method = self.pods_fingerprint_method if self.pods_fingerprint else ""
        namespace = "" if self.watch_namespace == EVERY_NAMESPACE else self.watch_namespace
        return Rules(method, frozenset(self.exclude_resources), excluded, namespace)

    def specs(self) -> tuple[NodeSpec, ...]:
        """The nodes to report. Raises ValueError for one that cannot be read."""
        listed = [parse_node(text) for text in self.nodes]
        if self.nodes_file:
            listed += _nodes_file(Path(self.nodes_file))
        if not listed and self.node_name:
            listed = [
                NodeSpec(self.node_name, self.podresources_socket, self.sysfs, self.kubelet_dir)
            ]
        return tuple(listed)


def parse_node(text: str) -> NodeSpec:
    """`NAME=SOCKET,SYSFS[,KUBELET_DIR]`. Raises ValueError."""
    name, found, rest = text.partition("=")
    parts = rest.split(",")
    if not found or not name or not 1 <= len(parts) <= 3 or not all(parts):
        raise ValueError(
            f"--node {text!r}: expected NAME=SOCKET,SYSFS or NAME=SOCKET,SYSFS,KUBELET_DIR"
        )
    return NodeSpec(
        name, parts[0], parts[1] if len(parts) > 1 else "/sys", parts[2] if len(parts) > 2 else ""
    )


def with_flags(argv: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the flags of a command line put over it; `--help` exits. NODE_NAME
    counts as TOPOLOG_NODE_NAME.
    """
    given = {
        name: value
        for name, value in vars(parser().parse_args(list(argv))).items()
        if value is not None
    }
    settings = {
        f"TOPOLOG_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in given.items()
    }
    base = dict(environment)
    if environment.get("NODE_NAME"):
        base.setdefault("TOPOLOG_NODE_NAME", environment["NODE_NAME"])
    return {**base, **settings}


def _is_pair(text: str) -> bool:
    return text.count("/") == 1 and all(map(globs.compiled, text.split("/")))


def _problems(settings: ExporterSettings) -> list[str]:
    """What no single value shows; one sentence each."""
    problems = [f"--exclude-pod {text!r}: expected NAMESPACE_PATTERN/NAME_PATTERN, for example kube-system/*"
                for text in settings.exclude_pods if not _is_pair(text)]  # fmt: skip
    if settings.kubelet_config_uri and not settings.kubelet_config_uri.startswith("https://"):
        problems.append(f"--kubelet-config-uri {settings.kubelet_config_uri!r}: expected https://ADDRESS:10250/configz; "
                        "a file is named with --kubelet-config")  # fmt: skip
    problems += _rte_problems(settings)
    if not settings.publish:
        problems.append("--publish: names nothing; give bus, nrt or both, or --no-publish")
    try:
        specs = settings.specs()
    except ValueError as error:
        return [*problems, str(error)]
    names = [spec.name for spec in specs]
    if settings.pods_fingerprint_status_file and len(names) > 1:
        problems.append(
            "--pods-fingerprint-status-file: one file for several nodes; give it with one node only"
        )
    if not 1 <= len(names) <= MAX_NODES:
        problems.append(
            f"{len(names)} nodes given; give 1 to {MAX_NODES} with --node, --nodes-file or NODE_NAME"
        )
    twice = sorted(names) if len(set(names)) != len(names) else []
    doubled = sorted({name for name, other in pairwise(twice) if name == other})
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
            "--metrics-want-cli-auth: clients show certificates by TLS alone; add --metrics-mode=httptls"
        )
    if settings.podreadiness and not (settings.pod_name and settings.pod_namespace):
        problems.append("--podreadiness: whose conditions? Set REFERENCE_NAMESPACE and REFERENCE_POD_NAME by the downward API "
                        "(k8s/components/exporter-readiness), or give --podreadiness=false")  # fmt: skip
    return problems


def _node_problems(spec: NodeSpec) -> list[str]:
    problems = []
    if len(spec.name) > 253 or not _NAME.fullmatch(spec.name):
        problems.append(
            f"node {spec.name!r}: is no node name; use up to 253 letters, digits, '-', '_' and '.'"
        )
    if spec.socket.startswith(CRI):
        problems.append(
            f"node {spec.name}: {spec.socket}: the exporter no longer reads container runtimes; give the kubelet's "
            f"podresources socket (--podresources-socket {DEFAULT_SOCKET})"
        )
    size = len(spec.socket.encode())
    if not spec.socket.startswith(FAKE) and size > MAX_SOCKET_BYTES:
        problems.append(
            f"node {spec.name}: its socket path has {size} bytes, the kernel allows {MAX_SOCKET_BYTES}"
        )
    return problems


def _nodes_file(path: Path) -> list[NodeSpec]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[NodeSpec])
    except (OSError, msgspec.MsgspecError) as error:
        raise ValueError(
            f"--nodes-file {path}: {error}; expected JSON [{{name, socket, sysfs, kubelet_dir}}]"
        ) from error


class _Parser(argparse.ArgumentParser):
    """Says what stands in the place of another exporter's flag."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown and (told := foreign_flags.remedy(unknown, self._option_string_actions)):
            self.exit(2, f"{self.prog}: {told}\n")
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found


def parser() -> argparse.ArgumentParser:
    """Flags named after the settings they set; a flag that is not given leaves environment and file
    alone.
    """
    parser = _Parser(
        "topolog-exporter",
        description="Reports NUMA zones of nodes from podresources.",
        allow_abbrev=False,
    )
    parser.add_argument("--hostname", dest="node_name", help="name of the node; else NODE_NAME")
    parser.add_argument(
        "--node", dest="nodes", action="append", metavar="NAME=SOCKET,SYSFS[,KUBELET_DIR]"
    )
    parser.add_argument("--nodes-file", help="JSON list of {name, socket, sysfs, kubelet_dir}")
    parser.add_argument(
        "--podresources-socket",
        help=f"a path; with NODE_NAME and no --node; else {DEFAULT_SOCKET}",
    )
    parser.add_argument("--sysfs", help="with NODE_NAME and no --node; else /sys")
    parser.add_argument(
        "--kubelet-dir",
        "--kubelet-state-dir",
        help="with NODE_NAME and no --node: configuration and checkpoints",
    )
    parser.add_argument("--nats-url", help="the bus; else TOPOLOG_NATS_URL")
    parser.add_argument("--interval", dest="interval_s", help="seconds between full reports (10)")
    parser.add_argument(
        "--sleep-interval",
        dest="interval_s",
        type=_argument(duration_s),
        help="the same, as 60s or 1m30s",
    )
    parser.add_argument(
        "--active-interval",
        dest="active_interval_s",
        help="seconds between lists without a kubelet folder (1)",
    )
    parser.add_argument(
        "--watch-interval",
        dest="watch_interval_s",
        help="seconds between looks at files without inotify (0.25)",
    )
    parser.add_argument(
        "--notify-file", help="a file whose creation, change or touch asks for a report"
    )
    parser.add_argument(
        "--max-events-per-second",
        dest="max_events_per_time_unit",
        help="scans for changes (10); 0: no limit",
    )
    parser.add_argument(
        "--deadline", dest="deadline_s", help="seconds until a podresources call is given up (10)"
    )
    _add_port(parser)
    parser.add_argument(
        "--kubelet-config",
        "--kubelet-config-file",
        help="KubeletConfiguration file, else KUBELET_DIR/config.yaml",
    )
    parser.add_argument(
        "--kubelet-config-uri",
        help="https://ADDRESS:10250/configz of the kubelet, instead of a file",
    )
    parser.add_argument(
        "--kubelet-ca-file", help="certificate authority of that address; else the system's"
    )
    parser.add_argument("--kubelet-token-file", help="bearer token for that address")
    parser.add_argument("--config-root", help="configuration folder of resource-topology-exporter")
    parser.add_argument("--oneshot", **_SWITCH, help="report each node once, then end")
    parser.add_argument("--no-publish", **_SWITCH, help="read, and publish nothing")
    parser.add_argument(
        "--publish",
        help="bus, nrt (NodeResourceTopology objects), or both with a comma between (bus)",
    )
    parser.add_argument(
        "--kubeconfig", help="for objects: a file, or http://ADDRESS; else the pod's own account"
    )
    parser.add_argument("--add-nrt-owner", **_SWITCH, help="objects go with their Node (true)")
    parser.add_argument(
        "--dra-slices",
        **_SWITCH,
        help="read ResourceSlices: devices of claims by zone (through --kubeconfig)",
    )
    parser.add_argument("--watch-namespace", help="account the pods of this namespace only")
    parser.add_argument("--pods-fingerprint", **_SWITCH, help="make fingerprints (true)")
    parser.add_argument(
        "--pods-fingerprint-status-file", help="JSON file with the fingerprint and its pods"
    )
    parser.add_argument(
        "--kubelet-version",
        help="as v1.36.2; else it is taken from the Node object by who reads that",
    )
    parser.add_argument("--boot-id-file", help="else SYSFS/boot_id, else the kernel's")
    parser.add_argument("--topology-manager-policy", choices=POLICIES)
    parser.add_argument("--topology-manager-scope", choices=SCOPES)
    parser.add_argument("--pods-fingerprint-method", type=str.lower, choices=METHODS)
    parser.add_argument(
        "--exclude-resource", dest="exclude_resources", action="append", metavar="RESOURCE"
    )
    parser.add_argument(
        "--exclude-pod",
        dest="exclude_pods",
        action="append",
        metavar="NAMESPACE/NAME",
        help="shell patterns",
    )
    return parser


def _add_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http-port", "--metrics-port", help="health and metrics; 0: any free port"
    )
    parser.add_argument("--http-host", "--metrics-ip", help="the address of that port (127.0.0.1)")
    parser.add_argument(
        "--metrics-mode",
        type=str.lower,
        choices=typing.get_args(Mode),
        help="http (the default): clear text",
    )
    parser.add_argument(
        "--metrics-certs-dir", help=f"with httptls: the folder of certificates ({CERTS_DIR})"
    )
    parser.add_argument(
        "--metrics-cert-file", help="with httptls: the certificate in that folder (tls.crt)"
    )
    parser.add_argument("--metrics-key-file", help="with httptls: its key in that folder (tls.key)")
    parser.add_argument(
        "--metrics-want-cli-auth",
        **_SWITCH,
        help="with httptls: clients need a certificate of that folder's ca.crt",
    )
    parser.add_argument(
        "--metrics-client-ca",
        dest="http_tls_client_ca",
        help="another file in the place of that ca.crt",
    )
    parser.add_argument("--metrics-tls-min-version", dest="http_tls_min_version", type=_argument(metrics_port.version),
                        metavar="VersionTLS12|VersionTLS13")  # fmt: skip
    parser.add_argument(
        "--metrics-tls-cipher-suites",
        dest="http_tls_ciphers",
        type=_argument(metrics_port.ciphers),
        metavar="NAME,...",
    )
    parser.add_argument(
        "--podreadiness",
        **_SWITCH,
        help="write conditions of this pod: PodresourcesFetched, NodeTopologyUpdated",
    )


_SWITCH: dict[str, Any] = {"nargs": "?", "const": "true", "choices": ("true", "false")}
"""A flag of Go: alone it means true."""


def _argument(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """argparse tells the sentence of this error, and of no other."""

    def converted(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return converted
