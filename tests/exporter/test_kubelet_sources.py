"""The kubelet's settings from its command line, files and drop-ins, merged as the kubelet does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.exporter import core, recorded
from services.exporter.kubelet_sources import COMMAND_LINE, KubeletSources, Places
from services.exporter.settings import ExporterSettings
from tests.exporter.kubelets import write_sysfs

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
KUBEADM = ["/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml"]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Return a node's file system with kubeadm's kubelet folder."""
    put(tmp_path, "var/lib/kubelet/config.yaml", HEAD)
    return tmp_path


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def start(root: Path, arguments: list[str], pid: int = 700) -> None:
    put(root, f"proc/{pid}/cmdline", "\0".join(arguments) + "\0")


def sources(root: Path, **more: str) -> KubeletSources:
    places = {"kubelet_dir": f"{root}/var/lib/kubelet", "root": str(root), "proc": f"{root}/proc"}
    return KubeletSources(Places(**{**places, **more}))


def test_an_unset_policy_is_none_only_if_the_command_line_was_read(node: Path) -> None:
    unread = sources(node).read()
    assert (unread.policy, unread.cpu_policy) == ("unknown", "")
    assert COMMAND_LINE in unread.notice
    start(node, KUBEADM)
    complete = sources(node).read()
    assert (complete.policy, complete.cpu_policy, complete.notice) == ("none", "none", "")


def test_flags_go_over_drop_ins_over_the_file(node: Path) -> None:
    put(
        node,
        "var/lib/kubelet/config.yaml",
        HEAD + "topologyManagerPolicy: best-effort\ntopologyManagerScope: pod\n"
        "topologyManagerPolicyOptions: {max-allowable-numa-nodes: '9'}\n",
    )
    put(node, "etc/kubelet.d/20-b.conf", HEAD + "topologyManagerPolicy: single-numa-node\n")
    put(
        node,
        "etc/kubelet.d/10-a.conf",
        HEAD + "topologyManagerPolicy: restricted\n"
        "topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true'}\n",
    )
    put(node, "etc/kubelet.d/30-c.yaml", HEAD + "topologyManagerPolicy: none\n")
    start(node, [*KUBEADM, "--config-dir", "/etc/kubelet.d"])
    merged = sources(node).read()
    assert (merged.policy, merged.scope) == ("single-numa-node", "pod")
    assert merged.options == {
        "max-allowable-numa-nodes": "9",
        "prefer-closest-numa-nodes": "true",
    }
    start(
        node,
        [
            *KUBEADM,
            "--config-dir=/etc/kubelet.d",
            "--topology_manager_policy=restricted",
            "--topology-manager-policy-options=max-allowable-numa-nodes=12",
            "--topology-manager-policy=best-effort",
        ],
    )
    flagged = sources(node).read()
    assert (flagged.policy, flagged.options) == ("best-effort", {"max-allowable-numa-nodes": "12"})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["kubelet", "--config=/etc/kubernetes/kubelet/config.json"], "/config.json (--config)"),
        ([*KUBEADM, "--config-dir=/etc/kubelet.d"], "/etc/kubelet.d (--config-dir)"),
    ],
)
def test_a_named_source_that_is_not_mounted_makes_the_policy_unknown(
    node: Path, arguments: list[str], named: str
) -> None:
    start(node, arguments)
    merged = sources(node).read()
    assert merged.policy == "unknown"
    assert named in merged.notice


PATHS = {
    "kubeadm": (
        "var/lib/kubelet/kubeadm-flags.env",
        'KUBELET_KUBEADM_ARGS="--node-ip=1.2.3.4 --topology-manager-policy=restricted"\n',
    ),
    "default": ("etc/default/kubelet", "KUBELET_EXTRA_ARGS=--topology-manager-policy restricted\n"),
    "sysconfig": (
        "etc/sysconfig/kubelet",
        "#A=--topology-manager-policy=none\nA='--topology-manager-policy=restricted'",
    ),
    "unit": (
        "etc/systemd/system/kubelet.service.d/20-numa.conf",
        (
            "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet \\\n "
            "--topology-manager-policy=restricted"
        ),
    ),
    "rke2": (
        "etc/rancher/rke2/config.yaml",
        'kubelet-arg:\n- "topology-manager-policy=restricted"',
    ),
    "k3s": (
        "etc/rancher/k3s/config.yaml.d/9.yaml",
        "kubelet-arg: topology-manager-policy=restricted",
    ),
    "microk8s": (
        "var/snap/microk8s/current/args/kubelet",
        "--topology-manager-policy=restricted\n",
    ),
    "k8s-snap": ("var/snap/k8s/common/args/kubelet", '--topology-manager-policy="restricted"\n'),
    "nodeadm": (
        "etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf",
        json.dumps({"kind": "KubeletConfiguration", "topologyManagerPolicy": "restricted"}),
    ),
    "rke2 drop-in": (
        "var/lib/rancher/rke2/agent/etc/kubelet.conf.d/50.conf",
        HEAD + "topologyManagerPolicy: restricted",
    ),
}


@pytest.mark.parametrize("name", PATHS)
def test_every_place_of_a_policy_is_read_without_the_command_line(node: Path, name: str) -> None:
    put(node, *PATHS[name])
    assert sources(node).read().policy == "restricted"


@pytest.mark.parametrize(
    "path",
    [
        "etc/kubernetes/kubelet/config.json",
        "etc/kubernetes/kubelet/config",
        "etc/kubernetes/kubelet.conf",
        "etc/kubernetes/kubelet.yaml",
        "home/kubernetes/kubelet-config.yaml",
        "etc/default/kubeletconfig.json",
    ],
)
def test_every_known_configuration_file_is_read(tmp_path: Path, path: str) -> None:
    put(tmp_path, "etc/kubernetes/kubelet.conf", "apiVersion: v1\nkind: Config\n")
    put(tmp_path, path, HEAD + "topologyManagerPolicy: restricted\n")
    assert sources(tmp_path).read().policy == "restricted"


def test_k3s_and_microk8s_run_the_kubelet_inside(node: Path) -> None:
    start(node, ["/usr/local/bin/k3s", "server", "--kubelet-arg", "topology-manager-scope=pod"])
    assert "/etc/rancher/k3s/config.yaml" in sources(node).read().notice
    put(node, "etc/rancher/k3s/config.yaml", "kubelet-arg: [topology-manager-policy=restricted]\n")
    put(node, "var/lib/rancher/k3s/agent/etc/kubelet.conf.d/0.conf", HEAD)
    merged = sources(node).read()
    assert (merged.policy, merged.scope, merged.unread) == ("restricted", "pod", ())
    start(node, ["/snap/microk8s/1/kubelite", "--kubelet-args-file=x"])
    put(node, "var/snap/microk8s/current/args/kubelet", "--topology-manager-policy=best-effort\n")
    assert sources(node).read().policy == "best-effort"


def test_a_later_file_of_rke2_replaces_the_arguments_or_adds_to_them(node: Path) -> None:
    folder = "etc/rancher/rke2/config.yaml"
    put(node, folder, "kubelet-arg: [topology-manager-policy=restricted]\n")
    put(node, f"{folder}.d/1.yaml", "kubelet-arg+: [topology-manager-scope=pod]\n")
    merged = sources(node).read()
    assert (merged.policy, merged.scope) == ("restricted", "pod")
    put(node, f"{folder}.d/2.yaml", "kubelet-arg: max-pods=50\n")
    assert sources(node).read().policy == "unknown"


def test_two_kubelets_with_other_flags_are_not_guessed(node: Path) -> None:
    start(node, KUBEADM, 700)
    start(node, [*KUBEADM, "--topology-manager-policy=restricted"], 701)
    assert sources(node).read().policy == "unknown"


def test_a_change_of_any_source_is_noticed(node: Path) -> None:
    start(node, [*KUBEADM, "--config-dir=/etc/kubelet.d"])
    put(node, "etc/kubelet.d/1.conf", HEAD)
    reader = sources(node)
    assert reader.read().policy == "none"
    put(node, "etc/kubelet.d/2.conf", HEAD + "topologyManagerPolicy: restricted\n")
    assert reader.read().policy == "restricted"


def test_only_the_exporter_of_this_machine_reads_its_proc() -> None:
    first = ExporterSettings(node_name="n1")
    assert first.places(first.specs()[0]).proc == "/proc"
    several = ExporterSettings(nodes=("n1=/a.sock,/a/sys,/a/kubelet",))
    assert several.places(several.specs()[0]).proc == ""


def recording(folder: Path, **files: str) -> Path:
    files |= {"list.json": '{"pod_resources": []}', "allocatable.json": "{}"}
    for name, text in files.items():
        put(folder, name, text)
    write_sysfs(folder / "sys")
    return folder


@pytest.mark.parametrize(
    ("files", "policy"),
    [
        ({"config.yaml": HEAD}, "unknown"),
        ({"config.yaml": HEAD, "cmdline": "kubelet\0--v=2"}, "none"),
        (
            {
                "config.yaml": HEAD,
                "proc/7/cmdline": "kubelet\0--topology-manager-policy=restricted\0",
            },
            "restricted",
        ),
        (
            {"config.yaml": HEAD, "kubeadm-flags.env": 'A="--topology-manager-policy=restricted"'},
            "restricted",
        ),
        ({"config.yaml": "kubelet-arg: [topology-manager-policy=best-effort]"}, "best-effort"),
        (
            {
                "config.json": "{}",
                "config.json.d/40-nodeadm.conf": HEAD + "topologyManagerPolicy: restricted",
            },
            "restricted",
        ),
        (
            {
                "10-kubeadm.conf": (
                    "[Service]\nExecStart=kubelet --topology-manager-policy=restricted"
                )
            },
            "restricted",
        ),
        (
            {
                "config.yaml": HEAD + "topologyManagerPolicy: none\n"
                "topologyManagerPolicyOptions: {max-allowable-numa-nodes: '4'}"
            },
            "none",
        ),
    ],
)
def test_a_recording_never_has_a_policy_that_was_not_read(
    tmp_path: Path, files: dict[str, str], policy: str
) -> None:
    folder = recording(tmp_path / "node", **files)
    report, notices = recorded.with_notices(folder, folder / "sys", "n1", None, core.Rules())
    assert report.policy == policy
    assert bool(notices) == (policy == "unknown")


def test_an_explicit_configuration_has_the_flags_of_its_folder(tmp_path: Path) -> None:
    flags = {"kubeadm-flags.env": "--topology-manager-policy=restricted"}
    folder = recording(tmp_path / "node", **flags)
    put(tmp_path, "other/config.yaml", HEAD + "topologyManagerPolicy: none\n")
    path = tmp_path / "other/config.yaml"
    report = recorded.report(folder, folder / "sys", "n1", path, core.Rules())
    assert report.policy == "none"
