"""Every recorded case of every vector file in `data/` holds for our models, and the runner itself
can fail.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.domain.pod import Container, Pod
from shared.kubelet.admission import admit, drop_stale, remove
from shared.kubelet.device_state import Device, register
from tests.kubelet.machines import GIB, GPU, kubelet
from tests.vectors.__main__ import main
from tests.vectors.indistinguishable import agree, hides_devices, with_devices_elsewhere
from tests.vectors.kinds import peers
from tests.vectors.peers_world import kubelet_of, pod_of
from tests.vectors.registry import deliberate_names, kind_of, load, results
from tests.vectors.scheduler_eyes import tally

DATA = Path(__file__).parent / "data"
FILES = sorted(DATA.glob("*.json.gz"))
PEERS = load(DATA / "peers.jsonl.gz")["cases"]


# An init container leaves 3 CPUs, and the object does not show whether one of them is half of a
# core that the next container leaves alone: then a kubelet rejects the pod, so it waits.
UNDECIDED_BY_OBJECTS = {"scheduler-plugins-filter-47"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_recorded_case_holds(path: Path) -> None:
    doc = load(path)
    kind = kind_of(doc)
    assert kind is not None, f"no kind recognises {path.name}"
    names = deliberate_names(kind, doc)
    differing = [(name, differences) for name, differences in results(kind, doc) if differences]
    assert not [case for case in differing if case[0] not in names], differing[:3]
    assert len(differing) <= len(doc["cases"]) // 3


def test_no_answer_is_worse_than_a_peers_unless_the_object_leaves_it_open() -> None:
    """The kubelet decides where it admits, the peer where it only ranks or preempts."""
    failed = {case["id"] for case in PEERS if peers.check(case)}
    assert failed == UNDECIDED_BY_OBJECTS
    assert len(PEERS) == 139


def test_a_kubelet_rejects_the_pod_that_an_object_leaves_undecided() -> None:
    """On a machine of the amounts of that object, where the 2 CPUs in use are halves of cores."""
    by_id = {case["id"]: case for case in PEERS}
    (node,) = by_id["scheduler-plugins-filter-46"]["nodes"].values()
    state = kubelet_of(node)
    containers = [{"kind": "app", "req": {"cpu": "1", "memory": "1Gi"}}]
    for name in "abcd":
        state = admit(state, pod_of({"name": name, "containers": containers})).state
    state = drop_stale(remove(remove(state, "a"), "c"))
    (undecided,) = UNDECIDED_BY_OBJECTS
    assert not admit(state, pod_of(by_id[undecided]["pods"][0])).admitted


def test_the_runner_prints_a_line_for_each_case_of_a_peer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_id = {case["id"]: case for case in PEERS}
    wrong = {**by_id["kai-filter-02"], "id": "wrong", "expect": {"p": {}}}
    broken = {**by_id["kai-filter-01"], "id": "broken", "nodes": {"n1": {"machine": {}}}}
    cases = [by_id["kai-filter-01"], by_id["kai-gang-02"], by_id["kai-filter-34"], wrong, broken]
    lines = "\n".join(json.dumps(case) for case in cases)
    (tmp_path / "cases.jsonl").write_text(lines)
    assert main([str(tmp_path)]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "kai-filter-01: passed"
    assert shown[1].startswith("kai-gang-02: passed")
    assert shown[2] == "kai-filter-34: passed (with on_missing_report: pass)"
    assert shown[3].startswith("wrong: failed (p: expected {}, waits: ")
    assert shown[4] == "broken: failed (raised KeyError: 'zones')"
    assert shown[-1] == "3 passed, 2 failed"


def test_the_scheduler_judges_every_seventh_recorded_sequence_as_the_kubelet_did() -> None:
    doc = load(DATA / "admission_sequences.json.gz")
    tallied = tally({"cases": doc["cases"][2::7]})
    assert (tallied.unsound, tallied.refused_needlessly) == ([], [])
    assert tallied.passed > 200
    assert tallied.refused > 200
    assert tallied.bounded_verdicts <= tallied.admissions // 10


def test_the_scheduler_judges_sequences_of_other_shapes_as_the_kubelet_did() -> None:
    """Amounts of 0, devices that come, go and become unhealthy, uneven zones, ids with gaps."""
    doc = load(DATA / "admission_shapes.json.gz")
    tallied = tally({"cases": doc["cases"][1::4]})
    assert (tallied.unsound, tallied.refused_needlessly) == ([], [])
    assert tallied.passed > 100
    assert tallied.refused > 150


def test_the_scheduler_judges_sequences_of_each_minor_as_its_kubelet_did() -> None:
    """A pod with pod-level resources goes only to kubelets from 1.34, whatever an older one says,
    and a device only to nodes that have some."""
    doc = load(DATA / "admission_by_minor.json.gz")
    cases = [
        case for case in doc["cases"] if not any(_is_kept_away(case, op) for op in case["ops"])
    ]
    tallied = tally({"cases": cases[::5]})
    assert (tallied.unsound, tallied.refused_needlessly) == ([], [])
    assert tallied.passed > 200
    assert tallied.refused > 200


def _is_kept_away(case: dict[str, Any], op: dict[str, Any]) -> bool:
    made = op.get("pod", {"containers": []})
    parts = [*made["containers"], *made.get("init_containers", ())]
    named = {name for part in parts for name in part.get("limits") or {} if "/" in name}
    return bool(made.get("resources")) or not named <= case["devices"].keys()


def test_a_verdict_is_uncertain_only_where_kubelets_that_look_alike_disagree() -> None:
    """One of three GPUs is unhealthy, and no report lists it. If it shares a zone with another,
    that zone could hold two when empty, and two zones would not be preferred for two GPUs.
    """
    gpus = {"g0": Device(1), "g1": Device(2), "ill": Device(2, False)}
    state = kubelet(2, "restricted", "container", cores_per_zone=4)
    state = msgspec.structs.replace(state, devices=register(state.devices, GPU, gpus))
    for count, certain in ((1, True), (2, False)):
        asked = {"cpu": 5000 * count, "memory": 40 * count * GIB, GPU: count}
        pod = Pod("u", "ns", "p", "Guaranteed", (Container("c", "app", asked, asked),))
        assert hides_devices(state, pod) == [GPU]
        assert agree(with_devices_elsewhere(state, pod), pod, None) is certain


def test_runner_through_the_schedulers_eyes_wants_sequences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _quantities(tmp_path, value=2)
    assert main(["--scheduler", str(tmp_path)]) == 1
    assert "no admission sequences" in capsys.readouterr().err
    doc = load(DATA / "admission_sequences.json.gz")
    case = {**doc["cases"][0], "ops": doc["cases"][0]["ops"][:1]}
    (tmp_path / "sequences.json").write_text(json.dumps({"cases": [case]}))
    assert main(["--scheduler", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["admissions"] == 1


def _quantities(tmp_path: Path, value: int) -> Path:
    expect = {
        "canonical": "2",
        "recomputed": "2",
        "exact": "2",
        "sign": 1,
        "value": value,
        "milli_value": 2000,
    }
    path = tmp_path / "quantities.json"
    path.write_text(json.dumps({"cases": [{"id": "one", "text": "2", "expect": expect}]}))
    return path


def test_runner_reports_a_passing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _quantities(tmp_path, value=2)
    assert main([str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{path}: 1/1", "1 passed, 0 failed"]


def test_runner_shows_the_difference_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _quantities(tmp_path, value=3)
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}: 0/1"
    assert "one: value: ours 2, recorded 3" in lines[1]
    assert lines[-1] == "0 passed, 1 failed"


def test_runner_counts_a_case_on_which_the_model_raises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "quantities.json"
    path.write_text(json.dumps({"cases": [{"id": "one", "text": "2", "expect": {}}]}))
    assert main([str(path)]) == 1
    assert "raised KeyError" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("strange.json", b'{"cases": [{"unheard": "of"}]}'),
        ("list.json", b"[1, 2]"),
        ("broken.json", b"{"),
        ("cut.json.gz", gzip.compress(b'{"cases": []}', mtime=0)[:10]),
        ("plain.json.gz", b"{}"),
        ("latin.json", b'{"cases": "\xff"}'),
    ],
)
def test_runner_fails_on_a_file_that_it_does_not_know(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main([str(tmp_path)]) == 1


def test_runner_fails_on_a_folder_in_which_nothing_was_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("no vectors")
    assert main([str(tmp_path)]) == 1
    assert "no vector file in this folder" in capsys.readouterr().out


def test_runner_goes_on_after_a_file_whose_cases_cannot_be_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doc = json.loads(gzip.decompress((DATA / "cpu_manager_static.json.gz").read_bytes()))
    (tmp_path / "a.json").write_text(json.dumps({"machines": {}, "cases": doc["cases"][:1]}))
    _quantities(tmp_path, value=2)
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "cpu_manager_static, but its cases cannot be listed" in lines[0]
    assert lines[-1] == "1 passed, 0 failed"


def test_runner_fails_on_a_missing_file_and_without_arguments(tmp_path: Path) -> None:
    assert main([str(tmp_path / "absent.json")]) == 1
    assert main([]) == 2
