"""A real node's eight moments: zones, costs, placements and fingerprint equal what
resource-topology-exporter published.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from services.cli import exporter
from services.cli.output import EXIT_USAGE, CommandError
from services.exporter import core, recorded
from shared.kube import nrt
from shared.kube.nrt import from_nrt, to_nrt
from tests.exporter.conftest import MOMENTS

runner = CliRunner()


def command() -> typer.Typer:
    app = typer.Typer()
    exporter.register(app)
    return app


def zones(doc: dict[str, Any]) -> list[dict[str, Any]]:
    """Return zones with resources, costs and attributes sorted, because RTE writes them in map
    order."""
    ordered = []
    for zone in doc["zones"]:
        lists = {
            key: sorted(zone.get(key, []), key=lambda one: one["name"])
            for key in ("resources", "costs", "attributes")
        }
        ordered.append({**zone, **lists})
    return sorted(ordered, key=lambda zone: zone["name"])


def published(recordings: Path, moment: str) -> dict[str, Any]:
    topology: dict[str, Any] = json.loads((recordings / moment / "nrt-by-rte.json").read_text())
    return topology


@pytest.mark.parametrize("moment", MOMENTS)
def test_command_prints_what_rte_published(recordings: Path, moment: str) -> None:
    arguments = [
        "exporter",
        "report",
        "--recording",
        str(recordings / moment),
        "--sysfs",
        str(recordings / "sysfs"),
    ]
    result = runner.invoke(command(), [*arguments, "--node", "vm0", "--json"])
    assert result.exit_code == 0, result.output
    ours, theirs = json.loads(result.stdout), published(recordings, moment)
    assert zones(ours) == zones(theirs)
    assert ours["attributes"] == theirs["attributes"]
    assert ours["metadata"]["name"] == theirs["metadata"]["name"]
    key = nrt.FINGERPRINT_ANNOTATION
    assert ours["metadata"]["annotations"][key] == theirs["metadata"]["annotations"][key]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("suffix", [".pb", ".json"])
def test_bytes_and_json_say_the_same(
    recordings: Path, tmp_path: Path, moment: str, suffix: str
) -> None:
    for name in ("list", "allocatable"):
        (tmp_path / f"{name}{suffix}").write_bytes(
            (recordings / moment / f"{name}{suffix}").read_bytes()
        )
    for name in ("cpu_manager_state", "memory_manager_state"):
        (tmp_path / name).write_bytes((recordings / moment / name).read_bytes())
    config = recordings / "kubelet-config.yaml"
    first = recorded.report(tmp_path, recordings / "sysfs", "vm0", config, core.Rules())
    assert first == recorded.report(
        recordings / moment, recordings / "sysfs", "vm0", config, core.Rules()
    )


@pytest.mark.parametrize("moment", MOMENTS)
def test_object_of_rte_reads_back_as_our_report(recordings: Path, moment: str) -> None:
    ours = recorded.report(recordings / moment, recordings / "sysfs", "vm0", None, core.Rules())
    theirs = from_nrt(published(recordings, moment), "", 0)
    assert [(zone.id, zone.resources, zone.costs) for zone in theirs.zones] == [
        (zone.id, zone.resources, zone.costs) for zone in ours.zones
    ]
    assert (theirs.policy, theirs.scope, theirs.tracked) == (ours.policy, ours.scope, ours.tracked)
    assert (theirs.fingerprint, theirs.fingerprint_method) == (
        ours.fingerprint,
        ours.fingerprint_method,
    )
    assert theirs.placements is None
    assert from_nrt(to_nrt(ours), "", 0) == theirs


def test_method_all_covers_every_listed_pod(recordings: Path) -> None:
    moment = recordings / "02-with-burstable-and-besteffort"
    exclusive = recorded.report(moment, recordings / "sysfs", "vm0", None, core.Rules())
    everything = recorded.report(moment, recordings / "sysfs", "vm0", None, core.Rules("all"))
    assert everything.fingerprint != exclusive.fingerprint
    assert everything.fingerprint_method == "all"


def test_an_unpinned_resource_is_a_bound_and_an_unset_policy_unknown(
    recordings: Path, tmp_path: Path
) -> None:
    (tmp_path / "list.json").write_text("{}")
    (tmp_path / "allocatable.json").write_text("{}")
    shutil.copytree(recordings / "sysfs", tmp_path / "alone" / "sysfs")
    arguments = [
        "exporter",
        "report",
        "--recording",
        str(tmp_path),
        "--sysfs",
        str(tmp_path / "alone" / "sysfs"),
        "--node",
        "n1",
    ]
    shown = runner.invoke(command(), arguments).stdout
    assert shown.startswith("n1: unknown, scope container")
    assert shown.count("at most, because no kubelet manager pins it: cpu 4, hugepages-2Mi ") == 2
    assert "cpu: 0 of 0 available, capacity 4" in shown


def test_missing_recording_names_folder_and_files(tmp_path: Path) -> None:
    result = runner.invoke(
        command(), ["exporter", "report", "--recording", str(tmp_path), "--sysfs", "/sys"]
    )
    assert isinstance(result.exception, CommandError)
    assert result.exception.exit_code == EXIT_USAGE
    assert "list.pb" in str(result.exception)
    assert str(tmp_path) in str(result.exception)


def test_layout_options_and_uids_of_a_real_node(recordings: Path) -> None:
    node_report = recorded.report(
        recordings / "01-one-guaranteed", recordings / "sysfs", "vm0", None, core.Rules()
    )
    assert node_report.cpus is not None
    assert (node_report.cpus.ids, node_report.cpus.zones) == ("0-7", "0x4,1x4")
    assert all((node_report.cpus.sockets, node_report.cpus.cores, node_report.cpus.caches))
    assert (node_report.reserved_cpus, node_report.cpu_policy, node_report.memory_policy) == (
        "0,4",
        "static",
        "Static",
    )
    assert node_report.checkpoints == ("cpu", "memory")
    assert node_report.placements is not None
    assert node_report.placements[0].pod_uid == "d1e69bc9-a6e6-4fca-867c-ae63f607f3f1"
    assert node_report.placements[0].held[0].ids == "1-2"
    assert node_report.zones[0].free == {
        "hugepages-1Gi": 0,
        "hugepages-2Mi": 134217728,
        "memory": 1566277632,
    }
