"""Which rules a version string stands for, and the options that each version knows."""

from __future__ import annotations

import msgspec
import pytest

from services.cli.machine_file import MachineFile, parse_machine
from shared.domain.fields import ManifestError
from shared.kubelet.admission import admit, drop_stale, remove
from shared.kubelet.cpu_manager import SMT_ALIGNMENT
from shared.kubelet.cpu_options import CpuOptions, parse_cpu_options
from shared.kubelet.machine import KubeletState
from shared.kubelet.options import ConfigError
from shared.kubelet.restart import Restart, restart
from shared.kubelet.versions import RECORDED, RULES, is_recorded, rules_of, support
from tests.kubelet.machines import container, guaranteed, kubelet


@pytest.mark.parametrize(
    ("version", "minors"),
    [
        ("v1.31.13", (31,)),
        ("v1.31.4-eks-aeac579", (31,)),
        ("v1.31.4-gke.1256000", (31,)),
        ("v1.31.4+k3s1", (31,)),
        ("1.36", (36,)),
        ("v1.36.0-rc.1", (35, 36)),
        ("v1.27.0-alpha.1", (27,)),
        ("v1.20.4", (27,)),
        ("v1.41.0", (37,)),
        ("", tuple(RULES)),
        ("v2.0.0", tuple(RULES)),
        ("devel", tuple(RULES)),
    ],
)
def test_a_version_names_its_minor_or_the_nearest(version: str, minors: tuple[int, ...]) -> None:
    assert tuple(rules.minor for rules in rules_of(version)) == minors


@pytest.mark.parametrize(
    ("version", "zones"),
    [
        ("v1.35.3+2b7e151", ["all"]),
        ("v1.35.4+2b7e151", ["all", "bearing"]),
        ("v1.35.5+2b7e151", ["bearing"]),
        ("v1.35.5", ["all"]),
        ("v1.35.5+k3s1", ["all"]),
        ("v1.34.9+2b7e151", ["all"]),
    ],
)
def test_openshifts_builds_carry_the_zones_of_device_hints(version: str, zones: list[str]) -> None:
    assert [rules.device_hint_zones for rules in rules_of(version)] == zones


def test_what_the_rules_rest_on_is_said() -> None:
    assert RECORDED == (31, 32, 33, 34, 35, 36)
    assert support("v1.31.4") == "recorded"
    assert support("v1.37.0") == "modelled as 1.37, without recorded decisions"
    assert support("v1.24.2") == "the rules of 1.27, the nearest version"
    assert support("v1.39.0") == "the rules of 1.37, the nearest version"
    assert support("") == "unknown: every version is considered"
    assert not is_recorded("v1.35.4+2b7e151")


def test_1_37_shares_the_rules_of_1_36() -> None:
    newer = {name: getattr(RULES[37], name) for name in RULES[37].__struct_fields__}
    older = {name: getattr(RULES[36], name) for name in RULES[36].__struct_fields__}
    differing = {name for name in newer if newer[name] != older[name]}
    assert differing == {"minor"}


@pytest.mark.parametrize(
    ("option", "minor", "alpha", "error"),
    [
        ("strict-cpu-reservation", 31, True, "unknown CPU Manager Policy option"),
        ("strict-cpu-reservation", 32, False, "Alpha-level Options not enabled"),
        ("strict-cpu-reservation", 33, False, ""),
        ("distribute-cpus-across-numa", 32, False, "Alpha-level Options not enabled"),
        ("distribute-cpus-across-numa", 33, False, ""),
        ("align-by-socket", 36, False, "Alpha-level Options not enabled"),
        ("align-by-socket", 36, True, ""),
    ],
)
def test_options_have_a_level_in_each_version(
    option: str, minor: int, alpha: bool, error: str
) -> None:
    parsed = parse_cpu_options({option: "true"}, RULES[minor].cpu_options, alpha=alpha)
    assert isinstance(parsed, ConfigError if error else CpuOptions)
    assert error in getattr(parsed, "message", "")


@pytest.mark.parametrize(("minor", "starts"), [(31, False), (32, True)])
def test_a_kubelet_may_refuse_its_own_memory_state_to_1_31(minor: int, starts: bool) -> None:
    """Two pods share a group of zones, the second has its memory in zone 1. After the end of the
    first the kubelet expects it in zone 0. It compares zone by zone, or by group."""
    state = kubelet(2, "none", rules=RULES[minor])
    state = after(state, "a", 1, 70)
    state = after(state, "b", 1, 30)
    again = restart(ended(state, "a"))
    assert isinstance(again, Restart) is starts


@pytest.mark.parametrize(
    ("before", "since", "admitted"),
    [(32, 32, False), (32, 33, True), (32, 34, True), (32, 35, False), (33, 34, False)],
)
def test_an_upgrade_to_1_33_or_1_34_reads_no_requests(
    before: int, since: int, admitted: bool
) -> None:
    """Under full-pcpus-only a kubelet that starts again refuses a running pod if fewer cores are
    free than the pod has. Without a request it does not ask, and the pod keeps its CPUs."""
    options = {"full-pcpus-only": "true"}
    state = kubelet(1, rules=RULES[before], cpu_options=options)
    state = after(state, "a", 4, 1)
    config = msgspec.structs.replace(state.kubelet.config, rules=RULES[since])
    again = restart(state, config)
    assert isinstance(again, Restart)
    ((_, answer),) = again.readmissions
    assert (answer.admitted, answer.reason == SMT_ALIGNMENT) == (admitted, not admitted)
    if admitted:
        assert again.state.cpu.entries == state.cpu.entries
        assert again.state.pods["a"].pod == state.pods["a"].pod


def after(state: KubeletState, uid: str, cpus: int, memory: int) -> KubeletState:
    answer = admit(state, guaranteed(uid, container("c", cpus, memory)))
    assert answer.admitted, answer.message
    return answer.state


def ended(state: KubeletState, uid: str) -> KubeletState:
    return drop_stale(remove(state, uid))


def machine_file(version: str) -> object:
    zone = {"id": 0, "cpus": "0-3", "memory": "8Gi"}
    return parse_machine({"zones": [zone], "kubelet_version": version})


def test_a_machine_file_may_name_the_version() -> None:
    parsed = machine_file("v1.31.4")
    assert isinstance(parsed, MachineFile)
    assert parsed.kubelet.rules is RULES[31]
    refused = machine_file("latest")
    assert isinstance(refused, ManifestError)
    assert refused.field == "kubelet_version"
