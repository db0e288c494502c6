"""Flags, environment and files of the exporter: every mistake named at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.exporter.flags import with_flags
from services.exporter.kubelet_config import KubeletConfigError, KubeletSettings, parse
from services.exporter.reserved import Reserved
from services.exporter.settings import ExporterSettings, NodeSpec
from shared.runtime.settings import SettingsInvalid, load

# The hard eviction threshold of memory.
DEFAULT_RESERVED = Reserved(amounts={"memory": 100 << 20})


def settings_of(*argv: str, **environment: str) -> ExporterSettings:
    return load(ExporterSettings, with_flags(argv, environment))


def test_nodes_from_flags_and_file(tmp_path: Path) -> None:
    listed = tmp_path / "nodes.json"
    listed.write_text(json.dumps([{"name": "c", "socket": "/c.sock"}]))
    settings = settings_of(
        "--node",
        "a=/a.sock,/a/sys",
        "--node",
        "b=/b.sock,/b/sys,/b/kubelet",
        "--nodes-file",
        str(listed),
    )
    assert settings.specs() == (
        NodeSpec("a", "/a.sock", "/a/sys"),
        NodeSpec("b", "/b.sock", "/b/sys", "/b/kubelet"),
        NodeSpec("c", "/c.sock"),
    )


def test_node_name_of_the_downward_api_means_this_machine() -> None:
    settings = settings_of(
        "--kubelet-dir", "/var/lib/kubelet", NODE_NAME="n7", TOPOLOG_INTERVAL_S="3"
    )
    assert settings.specs() == (
        NodeSpec("n7", "/var/lib/kubelet/pod-resources/kubelet.sock", "/sys", "/var/lib/kubelet"),
    )
    assert settings.interval_s == 3


def test_flags_win_over_the_environment() -> None:
    settings = settings_of(
        "--node",
        "a=/a.sock",
        "--interval",
        "5",
        "--exclude-pod",
        "kube-*/*",
        TOPOLOG_INTERVAL_S="9",
    )
    assert settings.interval_s == 5
    assert settings.rules.excluded_pods[0].namespace == "kube-*"


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ((), "0 nodes given"),
        (("--node", "a"), "expected NAME=SOCKET,SYSFS"),
        (("--node", "a=/s", "--node", "a=/t"), "node a: given more than once"),
        (("--node", "a=/" + "s" * 120), "has 121 bytes, the kernel allows 107"),
        (("--node", "a b=/s"), "not a node name"),
        (("--node", "../a=/s"), "not a node name"),
        (("--node", "é=/s"), "not a node name"),
        (("--nodes-file", "/nowhere.json"), "--nodes-file /nowhere.json"),
        (("--node", "a=/s", "--exclude-pod", "x"), "NAMESPACE_PATTERN/NAME_PATTERN"),
        (("--node", "a=/s", "--exclude-pod", "x/[a"), "NAMESPACE_PATTERN/NAME_PATTERN"),
        (("--node", "a=/s", "--interval", "0"), "TOPOLOG_INTERVAL_S"),
    ],
)
def test_wrong_settings_are_refused_by_name(argv: tuple[str, ...], named: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        settings_of(*argv)
    assert named in str(caught.value)


def test_several_mistakes_are_reported_together() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        settings_of("--node", "a=/s", "--interval", "no", "--deadline", "-1")
    assert len(caught.value.problems) == 2


def test_kubelet_configuration_in_yaml_and_json() -> None:
    options = {
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"},
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    }
    text = json.dumps(
        {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod", **options}
    )
    facts = parse(text.encode(), "config")
    assert facts == KubeletSettings(
        "restricted",
        "pod",
        {"full-pcpus-only": "true", "max-allowable-numa-nodes": "16"},
        "none",
        "None",
        reserved=DEFAULT_RESERVED,
    )
    assert facts.max_numa_nodes == 16
    assert parse(b"topologyManagerPolicy: best-effort", "config").policy == "best-effort"
    assert parse(b"{}", "config") == KubeletSettings(
        "none", "container", {}, "none", "None", reserved=DEFAULT_RESERVED
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"topologyManagerPolicy: strict", "topologyManagerPolicy must be one of"),
        (
            b"topologyManagerPolicy: restricted\ntopologyManagerScope: node",
            "topologyManagerScope must be one of",
        ),
        (b"kind: Pod", "kind is 'Pod'"),
        (b"- a", "expected a KubeletConfiguration"),
        (b"a: [", "expected a KubeletConfiguration"),
        (b'{"kind": "\xff"}', "expected a KubeletConfiguration"),
        (b"[" * 100_000, "expected a KubeletConfiguration"),
        (
            b"topologyManagerPolicy: restricted\n"
            b"topologyManagerPolicyOptions: {max-allowable-numa-nodes: '4'}",
            "must be a number from 8",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_invalid_kubelet_configuration_is_rejected(text: bytes, named: str) -> None:
    with pytest.raises(KubeletConfigError, match=named):
        parse(text, "config.yaml")


@pytest.mark.parametrize(
    ("flag", "setting", "value"),
    [
        ("--hostname=n2", "node_name", "n2"),
        ("--sleep-interval=1m30s", "interval_s", 90.0),
        ("--kubelet-config-file=/a.yaml", "kubelet_config", "/a.yaml"),
        ("--kubelet-state-dir=/var/lib/kubelet", "kubelet_dir", "/var/lib/kubelet"),
        ("--pods-fingerprint-method=ALL", "pods_fingerprint_method", "all"),
        ("--oneshot=false", "oneshot", False),
        ("--no-publish", "no_publish", True),
    ],
)
def test_equivalent_flags_of_other_exporters_are_accepted(
    flag: str, setting: str, value: object
) -> None:
    assert (
        getattr(load(ExporterSettings, with_flags([flag], {"NODE_NAME": "n1"})), setting) == value
    )


def test_every_namespace_has_nfds_name_too() -> None:
    settings = load(ExporterSettings, with_flags(["--watch-namespace=*"], {"NODE_NAME": "n1"}))
    assert settings.rules.namespace == ""


@pytest.mark.parametrize(
    ("flag", "replacement"),
    [
        ("--config=/etc/rte/config.yaml", "--config-root FOLDER"),
        ("/etc/rte", "--config-root FOLDER"),
        ("--refresh-node-resources", "leave it out"),
        ("-sleep-interval=60s", "-sleep-interval=60s: write it with two dashes, --sleep-interval"),
        ("--logtostderr=true", "TOPOLOG_LOG_LEVEL"),
        ("-v=4", "TOPOLOG_LOG_LEVEL"),
        ("--sleep-interval=60", "write a duration such as 60s"),
        ("--sleep-interval=0", "a node without reports expires"),
        ("--metrics-cert=a", "unrecognized arguments: --metrics-cert=a"),
    ],
)
def test_unsupported_flags_of_other_exporters_name_the_replacement(
    flag: str, replacement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        with_flags([flag], {})
    assert ended.value.code == 2
    assert replacement in capsys.readouterr().err


def test_a_container_runtime_socket_is_refused_with_the_replacement() -> None:
    with pytest.raises(ValueError, match=r"no longer reads container runtimes.*--podresources-soc"):
        ExporterSettings(
            node_name="n1", podresources_socket="cri:///run/containerd/containerd.sock"
        )


@pytest.mark.parametrize("flag", ["source", "cri-socket", "reserved-cpus", "device-resources"])
def test_a_removed_flag_names_its_replacement(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        with_flags([f"--{flag}=x"], {})
    assert "podresources" in capsys.readouterr().err or flag == "device-resources"
