"""Flags of resource-topology-exporter and NFD's topology-updater that are none here: what stands in
their place, or why nothing does. Pure: words in, a sentence out. Must not know settings. The same
verdicts with more words: docs/exporter.md.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

VERDICTS = {
    "config": "give the folder that holds extra/config.yaml: --config-root FOLDER",
    "debug": "set TOPOLOG_LOG_LEVEL=debug",
    "v": "set TOPOLOG_LOG_LEVEL=debug (4 and more), or leave it out",
    "dump-config": "topolog exporter config --dump FLAGS... prints what holds",
    "version": "topolog --version",
    "patch-mode": "leave it out: objects are applied whole by the API server",
    "patch-resync": "leave it out: objects are applied whole, and again every 5 minutes",
    "expose-timing": "leave it out: every report carries the moment of its reading",
    "refresh-node-resources": "leave it out: what is allocatable is read once an interval and on change",
    "exclude-terminal-pods": "leave it out: kubelets since 1.34 list active pods only",
    "reference-container": "leave it out: kubelets since 1.20 report exclusive CPUs only",
    "source": "leave it out: the exporter reads podresources only (--podresources-socket PATH)",
    "container-runtime": "leave it out: the exporter no longer reads container runtimes",
    "cri-socket": "give the kubelet's podresources socket: --podresources-socket PATH",
    "reserved-cpus": "leave it out: the kubelet reports its reserved CPUs through podresources",
    "reserved-memory": "leave it out: the kubelet reports its reserved memory through podresources",
    "device-resources": "leave it out: device plugins report their devices through the kubelet",
    "api-auth-token-file": "--kubelet-token-file FILE",
    "port": "--http-port PORT",
}
POSITIONAL = "--config-root FOLDER names resource-topology-exporter's folder"


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


def remedy(arguments: Iterable[str], known: Container[str] = ()) -> str:
    """What to give in the place of the first argument that nobody here knows; empty where it is
    nobody's. `known` are the flags here: Go takes them with one dash too."""
    for each in arguments:
        if not each.startswith("-"):
            return f"{each}: {POSITIONAL}"
        name = each.lstrip("-").partition("=")[0]
        if name.startswith(KLOG):
            return f"--{name}: leave it out: logs go to stderr, TOPOLOG_LOG_LEVEL says how many"
        if f"--{name}" in known:
            return f"{each}: write it with two dashes, --{name}"
        return f"--{name}: {VERDICTS[name]}" if name in VERDICTS else ""
    return ""
