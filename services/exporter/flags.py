"""The command line of `topolog-exporter`: flags named after settings, and RTE's and NFD's flags.

A flag of resource-topology-exporter or NFD's topology-updater that is not supported ends the start
with a message that names the replacement. docs/exporter.md has the same list with more detail. Must
not know what a setting does.
"""

from __future__ import annotations

import argparse
import json
import typing
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from services.exporter import metrics_port
from services.exporter.core import METHODS
from services.exporter.durations import duration_s
from services.exporter.metrics_port import CERTS_DIR, Mode
from services.exporter.settings import DEFAULT_SOCKET
from shared.domain.policies import POLICIES, SCOPES

_PODRESOURCES = "leave it out: the kubelet reports this through podresources"
UNSUPPORTED = {
    "config": "give the folder that holds extra/config.yaml: --config-root FOLDER",
    "debug": "set TOPOLOG_LOG_LEVEL=debug",
    "v": "set TOPOLOG_LOG_LEVEL=debug (for 4 and more), or leave it out",
    "dump-config": "use: topolog exporter config --dump FLAGS...",
    "version": "use: topolog --version",
    "patch-mode": "leave it out: the API server applies objects whole",
    "patch-resync": "leave it out: objects are applied whole, and again every 5 minutes",
    "expose-timing": "leave it out: every report has the moment of its reading",
    "refresh-node-resources": "leave it out: allocatable resources are read on change",
    "exclude-terminal-pods": "leave it out: the end of a pod frees what it is listed with",
    "reference-container": "leave it out: kubelets since 1.20 report exclusive CPUs only",
    "source": "leave it out: the exporter reads podresources only (--podresources-socket PATH)",
    "container-runtime": "leave it out: the exporter no longer reads container runtimes",
    "cri-socket": "give the kubelet's podresources socket: --podresources-socket PATH",
    "reserved-cpus": _PODRESOURCES,
    "reserved-memory": _PODRESOURCES,
    "device-resources": _PODRESOURCES,
    "api-auth-token-file": "use: --kubelet-token-file FILE",
    "port": "use: --http-port PORT",
}
POSITIONAL = "use --config-root FOLDER for the configuration folder of resource-topology-exporter"
KLOG = (
    "alsologtostderr",
    "log_",
    "logtostderr",
    "one_output",
    "add_dir_header",
    "skip_",
    "stderrthreshold",
    "vmodule",
)
# A boolean flag of Go: alone it means true.
_SWITCH: dict[str, Any] = {"nargs": "?", "const": "true", "choices": ("true", "false")}


def with_flags(argv: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the flags of a command line over it; `--help` exits.

    NODE_NAME counts as TOPOLOG_NODE_NAME.
    """
    base = dict(environment)
    if environment.get("NODE_NAME"):
        base.setdefault("TOPOLOG_NODE_NAME", environment["NODE_NAME"])
    for name, value in vars(parser().parse_args(list(argv))).items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            base[f"TOPOLOG_{name.upper()}"] = text
    return base


def remedy(arguments: Iterable[str], flags: Container[str] = ()) -> str:
    """Return the fix for the first unrecognized argument, or "" if it is not a flag of RTE or NFD.

    `flags` are the flags of this exporter: Go accepts them with one dash, too.
    """
    for argument in arguments:
        if not argument.startswith("-"):
            return f"{argument}: {POSITIONAL}"
        name = argument.lstrip("-").partition("=")[0]
        if name.startswith(KLOG):
            return f"--{name}: leave it out: logs go to stderr, TOPOLOG_LOG_LEVEL sets the level"
        if f"--{name}" in flags:
            return f"{argument}: write it with two dashes, --{name}"
        return f"--{name}: {UNSUPPORTED[name]}" if name in UNSUPPORTED else ""
    return ""


class _Parser(argparse.ArgumentParser):
    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown and (fix := remedy(unknown, self._option_string_actions)):
            self.exit(2, f"{self.prog}: {fix}\n")
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed


def parser() -> argparse.ArgumentParser:
    """Return the parser; a flag that is not given leaves environment and file alone."""
    parser = _Parser(
        "topolog-exporter",
        description="Reports the NUMA zones of nodes from podresources.",
        allow_abbrev=False,
    )
    _add_nodes(parser.add_argument)
    _add_intervals(parser.add_argument)
    _add_port(parser.add_argument)
    _add_kubelet(parser.add_argument)
    _add_output(parser.add_argument)
    return parser


def _add_nodes(add: Callable[..., Any]) -> None:
    single = "with NODE_NAME and no --node"
    add("--hostname", dest="node_name", help="name of the node (default: NODE_NAME)")
    add("--node", dest="nodes", action="append", metavar="NAME=SOCKET,SYSFS[,KUBELET_DIR]")
    add("--nodes-file", help="JSON list of {name, socket, sysfs, kubelet_dir, agent_dir}")
    add("--podresources-socket", help=f"{single}: path of the socket (default: {DEFAULT_SOCKET})")
    add("--sysfs", help=f"{single}: root of the /sys tree (default: /sys)")
    add(
        "--kubelet-dir",
        "--kubelet-state-dir",
        help=f"{single}: the kubelet's folder, with configuration and checkpoints",
    )
    add("--agent-dir", help=f"{single}: the folder in which topolog-agent writes its statement")


def _add_intervals(add: Callable[..., Any]) -> None:
    add("--nats-url", help="the bus (default: TOPOLOG_NATS_URL)")
    add("--interval", dest="interval_s", help="seconds between full reports (10)")
    add(
        "--sleep-interval",
        dest="interval_s",
        type=_argument(duration_s),
        help="the same as a duration: 60s or 1m30s",
    )
    add(
        "--active-interval",
        dest="active_interval_s",
        help="seconds between lists without a kubelet folder (1)",
    )
    add(
        "--watch-interval",
        dest="watch_interval_s",
        help="seconds between looks at files without inotify (0.25)",
    )
    add(
        "--report-on-change",
        **_SWITCH,
        help="report between full reports if the kubelet's state changed (true)",
    )
    add("--notify-file", help="a file whose creation, change or touch triggers a scan")
    add(
        "--max-events-per-second",
        dest="max_events_per_time_unit",
        help="limit of scans after changes (10); 0: no limit",
    )
    add("--deadline", dest="deadline_s", help="seconds until a podresources call fails (10)")


def _add_kubelet(add: Callable[..., Any]) -> None:
    add(
        "--kubelet-config",
        "--kubelet-config-file",
        help="KubeletConfiguration file (default: the kubelet's --config, KUBELET_DIR/config.yaml)",
    )
    add(
        "--kubelet-config-dir",
        help="folder of drop-in files *.conf (default: the kubelet's --config-dir)",
    )
    add(
        "--kubelet-config-uri",
        help="https://ADDRESS:10250/configz of the kubelet; goes before all files",
    )
    add("--kubelet-ca-file", help="certificate authority of that address (default: the system's)")
    add("--kubelet-token-file", help="bearer token for that address")
    add("--host-proc", help="the node's /proc, for the kubelet's command line (default: /proc)")
    add("--host-root", help="mount of the node's file system, for files that the kubelet names")
    add("--kubelet-version", help="such as v1.36.2 (default: from the Node object)")
    add("--boot-id-file", help="default: SYSFS/boot_id, then the kernel's")
    add("--topology-manager-policy", choices=POLICIES, help="overrides the kubelet's settings")
    add("--topology-manager-scope", choices=SCOPES, help="overrides the kubelet's settings")


def _add_output(add: Callable[..., Any]) -> None:
    add("--config-root", help="configuration folder of resource-topology-exporter")
    add("--oneshot", **_SWITCH, help="report each node once, then end")
    add("--no-publish", **_SWITCH, help="read, and publish nothing")
    add("--publish", help="bus, nrt (NodeResourceTopology objects), or bus,nrt (bus)")
    add(
        "--kubeconfig",
        help="for objects: a file, or http://ADDRESS (default: the pod's service account)",
    )
    add("--add-nrt-owner", **_SWITCH, help="the Node owns the object (true)")
    add(
        "--dra-slices",
        **_SWITCH,
        help="read ResourceSlices: devices of claims by zone (through --kubeconfig)",
    )
    add(
        "--device-objects",
        **_SWITCH,
        help="write Koordinator's Device objects (through --kubeconfig)",
    )
    add("--watch-namespace", help="account the pods of this namespace only")
    add("--pods-fingerprint", **_SWITCH, help="compute fingerprints (true)")
    add("--pods-fingerprint-status-file", help="JSON file with the fingerprint and its pods")
    add("--pods-fingerprint-method", type=str.lower, choices=METHODS)
    add("--exclude-resource", dest="exclude_resources", action="append", metavar="RESOURCE")
    add(
        "--exclude-pod",
        dest="exclude_pods",
        action="append",
        metavar="NAMESPACE/NAME",
        help="shell patterns",
    )
    add(
        "--podreadiness",
        **_SWITCH,
        help="write conditions of this pod: PodresourcesFetched, NodeTopologyUpdated",
    )


def _add_port(add: Callable[..., Any]) -> None:
    add("--http-port", "--metrics-port", help="health and metrics; 0: any free port")
    add("--http-host", "--metrics-ip", help="the address of that port (127.0.0.1)")
    add(
        "--metrics-mode",
        type=str.lower,
        choices=typing.get_args(Mode),
        help="http (the default) is clear text",
    )
    add("--metrics-certs-dir", help=f"with httptls: the folder of certificates ({CERTS_DIR})")
    add("--metrics-cert-file", help="with httptls: the certificate in that folder (tls.crt)")
    add("--metrics-key-file", help="with httptls: its key in that folder (tls.key)")
    add(
        "--metrics-want-cli-auth",
        **_SWITCH,
        help="with httptls: clients need a certificate of that folder's ca.crt",
    )
    add("--metrics-client-ca", dest="http_tls_client_ca", help="a file instead of that ca.crt")
    add(
        "--metrics-tls-min-version",
        dest="http_tls_min_version",
        type=_argument(metrics_port.version),
        metavar="VersionTLS12|VersionTLS13",
    )
    add(
        "--metrics-tls-cipher-suites",
        dest="http_tls_ciphers",
        type=_argument(metrics_port.ciphers),
        metavar="NAME,...",
    )


def _argument(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap a converter: argparse prints the text of ArgumentTypeError, and of no other error."""

    def converted(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return converted
