"""A second start uses the same cluster and refuses contradictions; --fresh and reset empty the
folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from services.cli.deciding_here import deciding_here
from services.cli.log_source import LogSource
from services.cli.main import main
from services.embedded.data_dir import DataDir
from services.embedded.errors import DataFolderError
from services.embedded.running import RunningService, forget_services, read_services, write_services
from services.embedded.up import kubeconfig
from services.embedded.up.options import ENDLESS, UpOptions, UsageError, check
from services.embedded.up.resuming import Given, Shape, shape_for, write_shape
from services.embedded.up.run import resumed_words
from services.embedded.up.scheduler_settings import write_settings
from services.embedded.up.status import Scheduling, Status, Workload
from shared.kube.connection import configuration


def test_omitted_options_come_from_the_folder(tmp_path: Path) -> None:
    assert shape_for(tmp_path, Given(), fresh=False) == Shape()
    write_shape(tmp_path, Shape(nodes=20, zones=4, policy="restricted", seed=7))
    assert shape_for(tmp_path, Given(), fresh=False) == Shape(
        nodes=20, zones=4, policy="restricted", seed=7
    )
    assert shape_for(tmp_path, Given(nodes=20, scope="pod"), fresh=False).scope == "pod"
    assert shape_for(tmp_path, Given(nodes=3), fresh=True) == Shape(nodes=3)


@pytest.mark.parametrize("given", [Given(nodes=4), Given(zones=8), Given(workload="openb:/traces")])
def test_another_cluster_on_the_same_folder_is_refused_with_the_remedy(
    tmp_path: Path, given: Given
) -> None:
    write_shape(tmp_path, Shape(nodes=20, zones=4))
    with pytest.raises(UsageError) as refused:
        shape_for(tmp_path, given, fresh=False)
    assert "but the folder has" in refused.value.problem
    assert "topolog up --fresh" in refused.value.remedy


def test_a_workload_can_be_left_out_and_taken_up_again(tmp_path: Path) -> None:
    write_shape(tmp_path, Shape(workload="none"))
    assert shape_for(tmp_path, Given(workload="demo"), fresh=False).workload == "demo"


def test_commands_on_the_folder_decide_as_its_schedulers_and_the_shell_overrides_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = LogSource("", tmp_path)
    assert source.settings({}) == {}
    environment = {
        "TOPOLOG_CYCLE_DEFAULT_POLICY": "restricted",
        "TOPOLOG_CYCLE_STRATEGY": "BestFit",
        "TOPOLOG_CONFIG": "file.yaml",
        "TOPOLOG_DATABASE_URL": "postgresql://u:secret@h/x",
    }
    write_settings(tmp_path, environment)
    read = source.settings({"TOPOLOG_CYCLE_STRATEGY": "KeepRoom"})
    assert read.pop("TOPOLOG_CONFIG") == str(tmp_path / "file.yaml")
    cycle = deciding_here(read).cycle
    assert (cycle.default_policy, cycle.strategy) == ("restricted", "KeepRoom")
    assert "secret" not in (tmp_path / "scheduler.json").read_text()
    assert LogSource("postgresql://u@h/x", None).settings({}) == {}
    (tmp_path / "scheduler.json").write_text("{")
    assert source.settings({}) == {}


def test_fresh_empties_the_folder_and_a_running_one_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with DataDir(folder) as first:
        assert not first.resumed
        (first.folder("postgres") / "file").write_text("x")
        (folder / "link").symlink_to(tmp_path)
        with pytest.raises(DataFolderError, match="in use"):
            DataDir(folder, fresh=True).open()
    with DataDir(folder) as again:
        assert again.resumed
        assert (folder / "postgres" / "file").exists()
    with DataDir(folder, fresh=True) as fresh:
        assert not fresh.resumed
        assert sorted(entry.name for entry in folder.iterdir()) == ["VERSION", "lock", "logs"]
    assert tmp_path.exists()


def test_reset_asks_or_needs_a_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    with DataDir(folder) as data:
        data.folder("postgres")

    def reset(*arguments: str) -> int:
        monkeypatch.setattr(
            sys, "argv", ["topolog", "reset", "--data-dir", str(folder), *arguments]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    assert reset() == 2
    assert "try: topolog reset --yes" in capsys.readouterr().err
    assert (folder / "postgres").exists()
    assert reset("--yes") == 0
    assert not (folder / "postgres").exists()


def test_fresh_refuses_an_outside_database(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--fresh does not empty the log"):
        check(UpOptions(data_dir=tmp_path, fresh=True, database_url="postgresql://h/d"))


def test_the_note_of_services_is_removed_without_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk too, `topolog up` ends as it should."""
    write_services(tmp_path, [RunningService("binder", 8080)])
    assert read_services(tmp_path) == [RunningService("binder", 8080)]
    monkeypatch.setattr(Path, "write_bytes", None)
    for _ in range(2):
        forget_services(tmp_path)
        assert read_services(tmp_path) == []


def test_a_resume_describes_the_state(tmp_path: Path) -> None:
    result = Status(
        1.0,
        Workload(resumed=60),
        Scheduling(position=12_345, nodes=8, pods_running=37, pods_pending=2),
    )
    endless = resumed_words(UpOptions(data_dir=tmp_path, pods=ENDLESS), result)
    assert endless == [
        "resumed: 12,345 events, 8 nodes, 39 live pods",
        "the workload continues after its first 60 pods",
    ]
    over = resumed_words(UpOptions(data_dir=tmp_path, pods=60), result)
    assert (
        over[1] == "all 60 pods of the workload were created before; "
        "topolog up --fresh starts from scratch"
    )


def test_the_kubeconfig_of_the_folder_reaches_its_cluster(tmp_path: Path) -> None:
    assert kubeconfig.read_kubeconfig(tmp_path) == ""
    path = kubeconfig.write_simulated(tmp_path, 18_444)
    assert kubeconfig.read_kubeconfig(tmp_path) == str(path)
    assert kubeconfig.last_port(tmp_path) == 18_444
    assert configuration(str(path)).cluster.server == "http://127.0.0.1:18444"
    kubeconfig.write_outside(tmp_path, "http://127.0.0.1:6443")
    assert kubeconfig.read_kubeconfig(tmp_path) == "http://127.0.0.1:6443"
