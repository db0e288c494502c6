"""Configuration folders of resource-topology-exporter: taken as they are, with symbolic links; what
is wrong is named.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from services.cli import exporter
from services.cli.output import CommandError
from services.exporter.precedence import dump, gathered
from services.exporter.rte_config import RteConfigError, read

DAEMON = """
nrtUpdater: {noPublish: true, patchResync: 10}
resourceMonitor: {namespace: blue, sysfsRoot: /host-sys, podSetFingerprintMethod: All}
topologyExporter:
  podResourcesSocketPath: unix:///podresources/kubelet.sock
  sleepInterval: 10000000000
  notifyFilePath: /run/rte/notify
  timeUnitToLimitEvents: 1000000000
  metricsTLS: {certFile: tls.crt}
"""
EXTRA = """
kubelet: {topologyManagerPolicy: single-numa-node, topologyManagerScope: pod}
resourceExclude: {"*": [memory], n1: [vendor/gpu], n2: [other]}
podExclude: [{namespacePattern: "kube-*", namePattern: "*"}]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder like a ConfigMap volume, in which every file is a link into a hidden
    folder.
    """
    for name, text in (("daemon/config.yaml", DAEMON), ("extra/config.yaml", EXTRA)):
        hidden = tmp_path / Path(name).parent / "..data"
        hidden.mkdir(parents=True)
        (hidden / "config.yaml").write_text(text)
        (tmp_path / name).symlink_to("..data/config.yaml")
    return tmp_path


def configlet(root: Path, name: str, text: str) -> None:
    folder = root / "daemon" / "config.yaml.d"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def values(root: Path) -> dict[str, str]:
    return {item.name: item.value for item in read(root, "n1").settings}


# Every key of resource-topology-exporter's own dump of its configuration.
EVERY = """
global: {debug: true, verbose: 2, kubeconfig: ""}
nrtUpdater: {noPublish: false, oneShot: false, hostname: n1, kubeConfig: "", patchMode: true,
  patchResync: 10}
resourceMonitor:
  {namespace: "", sysfsRoot: /sys, resourceExclude: {"*": [memory], n1.example: [a]},
   refreshNodeResources: true,
   podSetFingerprint: true, podSetFingerprintMethod: all, exposeTiming: true,
   podSetFingerprintStatusFile: "",
   podExclude: [{namespacePattern: a, namePattern: b}], excludeTerminalPods: true,
   numaPlacement: ""}
topologyExporter:
  {referenceContainer: {namespace: a, podName: b, containerName: c},
   topologyManagerPolicy: restricted,
   topologyManagerScope: pod, kubeletConfigFile: /k, podResourcesSocketPath: /s,
   sleepInterval: 60000000000,
   podReadinessEnable: false, notifyFilePath: /n, maxEventPerTimeUnit: 1,
   timeUnitToLimitEvents: 1000000000,
   addNRTOwnerEnable: true, metricsMode: httptls, metricsPort: 2112, metricsAddress: 0.0.0.0,
   metricsTLS: {certsDir: /c, certFile: a, keyFile: b, wantCliAuth: true,
   minTLSVersion: VersionTLS13, cipherSuites: ""}}
"""


def test_every_key_of_rte_is_known(root: Path) -> None:
    (root / "daemon" / "config.yaml").unlink()
    (root / "daemon" / "config.yaml").write_text(EVERY)
    (root / "extra" / "config.yaml").unlink()
    result = values(root)
    assert (result["exclude_resources"], result["exclude_pods"]) == ('["memory"]', '["a/b"]')
    assert (result["topology_manager_policy"], result["topology_manager_scope"]) == (
        "restricted",
        "pod",
    )


def test_a_folder_is_taken_as_it_is(root: Path) -> None:
    assert values(root) == {
        "no_publish": "true",
        "watch_namespace": "blue",
        "sysfs": "/host-sys",
        "pods_fingerprint_method": "all",
        "podresources_socket": "/podresources/kubelet.sock",
        "interval_s": "10",
        "notify_file": "/run/rte/notify",
        "time_unit_to_limit_events_s": "1",
        "topology_manager_policy": "single-numa-node",
        "topology_manager_scope": "pod",
        "exclude_resources": '["memory", "vendor/gpu"]',
        "exclude_pods": '["kube-*/*"]',
        "metrics_cert_file": "tls.crt",
    }
    left_out = {item.origin.rsplit(": ")[-1] for item in read(root, "n1").left_out}
    assert left_out == {"nrtUpdater.patchResync"}


def test_configlets_go_over_the_main_file_in_order_of_their_names_and_without_one(
    root: Path, tmp_path: Path
) -> None:
    configlet(root, "20-later.yaml", "topologyExporter: {sleepInterval: '30s'}")
    configlet(
        root, "10-first.yaml", "topologyExporter: {sleepInterval: '1m', maxEventPerTimeUnit: 3}"
    )
    assert (values(root)["interval_s"], values(root)["max_events_per_time_unit"]) == ("30", "3")
    (root / "daemon" / "config.yaml").unlink()
    assert values(root)["interval_s"] == "30"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("topologyExporter: {sleepIntervall: 5}", "topologyExporter.sleepIntervall: not a key"),
        (
            "topologyExporter: {sleepInterval: 60}",
            "60 is 60 nanoseconds; write a text such as '60s'",
        ),
        ("topologyExporter: {sleepInterval: 0}", "0 turns reports off"),
        (
            "topologyExporter: {timeUnitToLimitEvents: 0}",
            "for no limit write maxEventPerTimeUnit: 0",
        ),
        ("nrtUpdater: {hostname: }", "None is not a text"),
        ("globals:", "globals: not a key"),
        ("topologyExporter: {sleepInterval: sixty}", "'sixty' is not a duration"),
        ("topologyExporter: {metricsPort: '2112'}", "'2112' is not a whole number"),
        (
            "topologyExporter: {metricsMode: https}",
            "'https' is not a mode; write disabled, http or httptls",
        ),
        (
            "topologyExporter: {metricsTLS: {minTLSVersion: VersionTLS11}}",
            "write VersionTLS12 or VersionTLS13",
        ),
        ("nrtUpdater: {noPublish: 'yes'}", "'yes' is neither true nor false"),
        ("resourceMonitor: {sysfsRoot: 7}", "7 is not a text"),
        ("- a", "not a mapping"),
        ("a: [", "cannot be read as YAML"),
    ],
)
def test_a_mistake_is_named_with_file_key_and_remedy(root: Path, text: str, named: str) -> None:
    configlet(root, "50.yaml", text)
    with pytest.raises(RteConfigError) as output:
        read(root, "n1")
    assert named in str(output.value)
    assert "50.yaml" in str(output.value)


def test_a_commented_section_sets_nothing(root: Path) -> None:
    """RTE ef567ef3 takes sections without keys, in every file, for sections that are not there."""
    earlier = values(root)
    configlet(
        root,
        "50.yaml",
        (
            "global:\nnrtUpdater: {}\nresourceMonitor:\n  "
            "resourceExclude:\ntopologyExporter: {metricsTLS: }\n"
        ),
    )
    assert values(root) == earlier
    extra = root / "extra" / "..data" / "config.yaml"
    extra.write_text("kubelet:\nresourceExclude:\npodExclude:\n")
    assert (
        not {"topology_manager_policy", "exclude_resources", "exclude_pods"} & values(root).keys()
    )
    extra.write_text(
        "kubelet: {topologyManagerPolicy: , topologyManagerScope: ''}\nresourceExclude: "
        "{'*': , n1: [memory]}\n"
    )
    assert values(root)["exclude_resources"] == '["memory"]'
    assert not {"topology_manager_policy", "topology_manager_scope"} & values(root).keys()


@pytest.mark.parametrize(
    "text",
    [
        "unknown: 1",
        "kubelet: {policy: none}",
        "resourceExclude: [memory]",
        "podExclude: [{namePattern: a}]",
    ],
)
def test_the_extra_file_is_checked_too(root: Path, text: str) -> None:
    (root / "extra" / "..data" / "config.yaml").write_text(text)
    with pytest.raises(RteConfigError, match=r"extra/config\.yaml"):
        read(root, "n1")


def test_flags_go_over_environment_over_folder_over_default_with_origins(
    root: Path,
) -> None:
    environment = {"NODE_NAME": "n1", "TOPOLOG_SYSFS": "/env-sys"}
    result = gathered(["--config-root", str(root), "--interval", "7"], environment)
    lines = {line.setting: (line.value, line.origin) for line in dump(result)}
    assert lines["interval_s"] == (7.0, "command line")
    assert lines["sysfs"] == ("/env-sys", "environment TOPOLOG_SYSFS")
    assert lines["node_name"] == ("n1", "environment NODE_NAME")
    assert lines["watch_namespace"] == (
        "blue",
        f"{root}/daemon/config.yaml: resourceMonitor.namespace",
    )
    assert lines["exclude_resources"] == (
        ["memory", "vendor/gpu"],
        f"{root}/extra/config.yaml: resourceExclude",
    )
    assert lines["deadline_s"] == (10.0, "default")


def test_the_command_prints_settings_and_names_mistakes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "n1")
    app = typer.Typer()
    exporter.register(app)
    asked = ["exporter", "config", "--config-root", str(root)]
    text = CliRunner().invoke(app, [*asked, "--dump"])
    assert text.exit_code == 0, text.output
    assert "watch_namespace = 'blue'" in text.stdout
    assert "left out" in text.stdout
    assert json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["settings"]
    configlet(root, "50.yaml", "nrtUpdater: {noPublish: 1}")
    wrong = CliRunner().invoke(app, asked)
    assert isinstance(wrong.exception, CommandError)
    assert "nrtUpdater.noPublish" in str(wrong.exception)


def test_rtes_environment_fills_in_unset_settings(root: Path) -> None:
    text = {
        "NODE_NAME": "n1",
        "TOPOLOGY_MANAGER_POLICY": "restricted",
        "PFP_STATUS_FILE": "/run/pfp.json",
    }
    alone = {line.setting: (line.value, line.origin) for line in dump(gathered([], text))}
    assert alone["topology_manager_policy"] == ("restricted", "environment TOPOLOGY_MANAGER_POLICY")
    assert alone["pods_fingerprint_status_file"] == ("/run/pfp.json", "environment PFP_STATUS_FILE")
    sibling = {
        line.setting: line.value for line in dump(gathered(["--config-root", str(root)], text))
    }
    assert sibling["topology_manager_policy"] == "single-numa-node"
    configlet(root, "50.yaml", "resourceMonitor: {podSetFingerprintStatusFile: ''}")
    empty = {
        line.setting: line.value for line in dump(gathered(["--config-root", str(root)], text))
    }
    assert empty["pods_fingerprint_status_file"] == "/run/pfp.json"
