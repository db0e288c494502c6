"""`topolog admit`: results as a table and as JSON, exit codes, and messages about wrong files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from services.cli.main import app
from services.cli.output import CommandError
from tests.recorded_node import unpacked

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

MACHINE: dict[str, Any] = {
    "zones": [
        {
            "id": 0,
            "cpus": "0-3,8-11",
            "memory": "16Gi",
            "hugepages": {"2Mi": 512},
            "distances": [10, 21],
        },
        {"id": 1, "cpus": "4-7,12-15", "memory": "16Gi", "distances": [21, 10]},
    ],
    "threads_per_core": 2,
    "sockets": ["0-3,8-11", "4-7,12-15"],
    "kubelet": {
        "topologyManagerPolicy": "single-numa-node",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0,8",
        "memoryManagerPolicy": "Static",
        "systemReserved": {"memory": "1948Mi"},
        "reservedMemory": [
            {"numaNode": 0, "limits": {"memory": "1Gi"}},
            {"numaNode": 1, "limits": {"memory": "1Gi"}},
        ],
        "maxPods": 110,
    },
    "devices": {
        "example.com/gpu": [
            {"id": "gpu-0", "zones": [1]},
            {"id": "gpu-1", "zones": [1], "healthy": False},
        ]
    },
}


def pod(name: str, **limits: str) -> dict[str, Any]:
    amounts = {key.replace("_", "."): value for key, value in limits.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": amounts}}]},
    }


def gpu_pod(name: str, cpu: str = "2") -> dict[str, Any]:
    pod_spec = pod(name, cpu=cpu, memory="1Gi")
    pod_spec["spec"]["containers"][0]["resources"]["limits"]["example.com/gpu"] = "1"
    return pod_spec


def run(folder: Path, machine: object, pods: Sequence[object], *options: str) -> Result:
    (folder / "machine.yaml").write_text(
        machine if isinstance(machine, str) else yaml.safe_dump(machine)
    )
    (folder / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    files = ["--machine", str(folder / "machine.yaml"), "--pods", str(folder / "pods.yaml")]
    return CliRunner().invoke(app, ["admit", *files, *options])


def complaint(result: Result) -> str:
    assert isinstance(result.exception, CommandError), result
    assert (result.exception.exit_code, bool(result.exception.remedy)) == (2, True)
    return str(result.exception)


def test_pods_are_admitted_in_order_and_shown_with_what_they_hold(tmp_path: Path) -> None:
    result = run(
        tmp_path, MACHINE, [gpu_pod("a"), gpu_pod("b"), pod("c", cpu="6", memory="2Gi")], "--json"
    )
    first, second, third = map(json.loads, result.stdout.splitlines())
    assert first["containers"][0] == {
        "name": "c",
        "hint": {"zones": [1], "preferred": True},
        "cpus": "4,12",
        "memory": [{"resource": "memory", "bytes": 1 << 30, "zones": [1]}],
        "devices": {"example.com/gpu": ["gpu-0"]},
    }
    assert (second["admitted"], second["reason"]) == (False, "TopologyAffinityError")
    assert third["containers"][0]["hint"]["zones"] == [0]
    assert result.exit_code == 3


def test_the_table_shows_containers_and_the_kubelets_rejection(tmp_path: Path) -> None:
    result = run(
        tmp_path, MACHINE, [pod("fits", cpu="2", memory="1Gi"), pod("wide", cpu="9", memory="1Gi")]
    )
    assert "default/fits" in result.stdout
    assert (
        "default/wide rejected: TopologyAffinityError: Resources cannot be allocated with"
        in result.stdout
    )
    assert run(tmp_path, MACHINE, [pod("fits", cpu="2", memory="1Gi")]).exit_code == 0


def test_the_examples_of_the_documentation_work() -> None:
    files = [
        "--machine",
        str(EXAMPLES / "machine.yaml"),
        "--pods",
        str(EXAMPLES / "pods.yaml"),
        "--json",
    ]
    verdicts = [
        json.loads(line) for line in CliRunner().invoke(app, ["admit", *files]).stdout.splitlines()
    ]
    assert [verdict["admitted"] for verdict in verdicts] == [True, False, True]
    assert verdicts[0]["containers"][0]["devices"] == {"example.com/gpu": ["gpu-0", "gpu-1"]}


def test_a_list_of_pods_as_kubectl_prints_it_is_read(tmp_path: Path) -> None:
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [pod("a", cpu="1", memory="1Gi"), pod("b")],
    }
    lines = run(tmp_path, MACHINE, [listed], "--json").stdout.splitlines()
    assert [json.loads(line)["pod"] for line in lines] == ["default/a", "default/b"]


def test_a_recorded_host_describes_itself_as_a_machine_that_admits(tmp_path: Path) -> None:
    unpacked(tmp_path)
    options = [
        "--sysfs",
        str(tmp_path / "sysfs"),
        "--kubelet-config",
        str(tmp_path / "kubelet-config.yaml"),
    ]
    described = CliRunner().invoke(app, ["admit", "--describe", *options])
    assert described.exit_code == 0
    result = run(tmp_path, described.stdout, [pod("a", cpu="2", memory="128Mi")], "--json")
    assert json.loads(result.stdout)["containers"][0]["cpus"] == "1-2"


def test_files_longer_than_any_of_their_kind_are_refused_before_they_are_read_as_yaml(
    tmp_path: Path,
) -> None:
    long = tmp_path / "long.yaml"
    long.write_text("evictionHard:\n" + "".join(f"  k{index}: 1%\n" for index in range(200_000)))
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump(pod("a")))
    described = CliRunner().invoke(app, ["admit", "--describe", "--kubelet-config", str(long)])
    assert "more than 131072 bytes" in complaint(described)
    admitted = CliRunner().invoke(
        app, ["admit", "--machine", str(long), "--pods", str(tmp_path / "pods.yaml")]
    )
    assert "more than 1048576 bytes" in complaint(admitted)


def test_an_empty_configuration_is_the_kubelets_own(tmp_path: Path) -> None:
    unpacked(tmp_path)
    (tmp_path / "empty.yaml").touch()
    options = ["--sysfs", str(tmp_path / "sysfs"), "--kubelet-config", str(tmp_path / "empty.yaml")]
    assert CliRunner().invoke(app, ["admit", "--describe", *options]).exit_code == 0


def test_a_folder_that_is_no_sys_tree_is_said_to_be_none(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["admit", "--describe", "--sysfs", str(tmp_path)])
    assert "not a /sys tree" in complaint(result)


def test_without_files_the_next_command_is_named() -> None:
    result = CliRunner().invoke(app, ["admit"])
    assert isinstance(result.exception, CommandError)
    assert "--describe" in result.exception.remedy


SMALL: dict[str, Any] = {
    "zones": [{"id": 0, "cpus": "0-1", "memory": "8Gi", "hugepages": {"2Mi": 512}}],
    "kubelet": {
        "systemReserved": {"cpu": "500m", "memory": "412Mi"},
        "evictionHard": {"memory.available": "100Mi"},
        "maxPods": 3,
    },
}


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize(
    ("asked", "reason", "message"),
    [
        ({"cpu": "640"}, "OutOfcpu", "cpu, requested: 640000, used: 0, capacity: 1500"),
        (
            {"cpu": "1", "memory": "7Gi"},
            "OutOfmemory",
            "memory, requested: 7516192768, used: 0, capacity: 6979321856",
        ),
        (
            {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Gi"},
            "OutOfhugepages-2Mi",
            "used: 0, capacity: 1073741824",
        ),
    ],
)
def test_the_node_level_check_rejects_under_every_policy(
    tmp_path: Path, policy: str, asked: dict[str, str], reason: str, message: str
) -> None:
    machine = {**SMALL, "kubelet": {**SMALL["kubelet"], "topologyManagerPolicy": policy}}
    result = run(tmp_path, machine, [pod("big", **{"memory": "1Gi", **asked})], "--json")
    verdict = json.loads(result.stdout)
    assert (result.exit_code, verdict["admitted"], verdict["reason"]) == (3, False, reason)
    assert message in verdict["message"]


def test_pods_before_count_and_so_does_their_number(tmp_path: Path) -> None:
    asked = [pod(name, cpu="600m", memory="1Gi") for name in "abc"]
    verdicts = [
        json.loads(line) for line in run(tmp_path, SMALL, asked, "--json").stdout.splitlines()
    ]
    assert [verdict.get("reason") for verdict in verdicts] == [None, None, "OutOfcpu"]
    assert "used: 1200" in verdicts[2]["message"]
    small = [pod(name, cpu="1m", memory="1Mi") for name in "abcd"]
    verdicts = [
        json.loads(line) for line in run(tmp_path, SMALL, small, "--json").stdout.splitlines()
    ]
    assert [verdict.get("reason") for verdict in verdicts] == [None, None, None, "OutOfpods"]


def test_policy_none_says_that_nothing_was_aligned(tmp_path: Path) -> None:
    printed = run(tmp_path, SMALL, [pod("a", cpu="1", memory="1Gi")]).stdout
    assert "not aligned" in printed
    assert "policy none: nothing is aligned" in printed
    assert (
        json.loads(run(tmp_path, SMALL, [pod("a", cpu="1", memory="1Gi")], "--json").stdout)[
            "aligned"
        ]
        is False
    )
    assert "aligned" not in run(tmp_path, MACHINE, [pod("a", cpu="1", memory="1Gi")]).stdout


def test_a_device_that_no_plugin_offers_is_named(tmp_path: Path) -> None:
    printed = run(tmp_path, SMALL, [gpu_pod("a", "1")]).stdout
    assert (
        "default/a requests example.com/gpu, which no device plugin of this machine offers"
        in printed
    )


@pytest.mark.parametrize(
    ("kind", "spec", "names"),
    [
        ("Deployment", {"replicas": 2}, ["team/web-0", "team/web-1"]),
        ("Deployment", {}, ["team/web-0"]),
        ("StatefulSet", {"replicas": 3}, ["team/web-0", "team/web-1", "team/web-2"]),
        ("DaemonSet", {}, ["team/web-0"]),
        ("Job", {"parallelism": 5, "completions": 2}, ["team/web-0", "team/web-1"]),
        ("CronJob", {"parallelism": 2}, ["team/web-0", "team/web-1"]),
    ],
)
def test_controllers_are_read_by_their_template(
    tmp_path: Path, kind: str, spec: dict[str, Any], names: list[str]
) -> None:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": pod("x", cpu="1", memory="1Gi")["spec"],
    }
    spec = {**spec, "template": template}
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    document = {
        "apiVersion": "batch/v1" if "Job" in kind else "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "team"},
        "spec": spec,
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    result = run(tmp_path, MACHINE, [document, service], "--json")
    assert [
        json.loads(line)["pod"] for line in result.stdout.splitlines() if line.startswith("{")
    ] == names
    assert "Service web has no pods and is skipped" in result.stderr


def changed(path: str, value: object) -> dict[str, Any]:
    """Return MACHINE with the field at a dotted path replaced."""
    machine: Any = json.loads(json.dumps(MACHINE))
    *parents, last = path.split("/")
    index = machine
    for step in parents:
        index = index[int(step)] if isinstance(index, list) else index[step.replace("~", "/")]
    index[int(last) if isinstance(index, list) else last] = value
    return dict(machine)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("zones", [], "zones: a list of 0 items: list at least one zone"),
        ("zones/0/id", 1024, "zones[0].id: 1024: write the NUMA node's id, 0 to 1023"),
        ("zones/1/id", 0, "zones: a list of 2 items: describe zone 0 once"),
        ("zones/0/cpus", "0-", "zones[0].cpus: '0-': write a Linux list"),
        ("zones/1/cpus", "3-7", "zones[1].cpus: 3: list each CPU once"),
        ("zones/0/cpus", "1-3,8-11", "sockets[0]: '0-3,8-11': list CPUs that a zone lists too"),
        ("zones/0/memory", "16Gib", "memory: '16Gib': write a quantity"),
        ("zones/0/memory", "-1", "memory: '-1': write an amount of zero or more"),
        (
            "zones/0/hugepages",
            {"2Mi": "many"},
            "zones[0].hugepages.2Mi: 'many': write the number of pages",
        ),
        ("zones/0/hugepages", {"0": 4}, "zones[0].hugepages: '0': write a page size"),
        ("zones/0/hugepages", {"1Gi": 17}, "hugepages are part of memory"),
        ("zones/0/distances", [10], "distances of zone 0: a list of 1 items: write 2 numbers"),
        ("zones/0/distances", [10, "x"], "zones[0].distances[1]: 'x': write an ACPI distance"),
        ("zones/0/cpu", "0-3", "zones[0].cpu: '0-3': unknown field; use id, cpus"),
        ("sockets", ["0-3,8-11"], "sockets: a list of 1 items: list every CPU; 4 is missing"),
        ("sockets", ["0-16"], "sockets[0]: '0-16': list CPUs that a zone lists too"),
        ("threads_per_core", 3, "threads_per_core: 3: the machine has 16 CPUs"),
        ("kubelet/reservedSystemCPUs", "0,99", "unknown CPU ID: 99"),
        (
            "kubelet/reservedMemory",
            [{"numaNode": 0, "limits": {"memory": "x"}}],
            "limits.memory: 'x': write a quantity",
        ),
        (
            "kubelet/topologyManagerPolicy",
            "strict",
            'kubelet: would not start: unknown policy: "strict"',
        ),
        (
            "kubelet/cpuManagerPolicyOptions",
            {"full-pcpus-only": True},
            "full-pcpus-only: True: write a text",
        ),
        (
            "kubelet/cpuManagerPolicyOptions",
            {"align-by-socket": "true"},
            "Alpha-level Options not enabled",
        ),
        ("devices", {"gpu": []}, "devices.gpu: 'gpu': write a device resource"),
        ("devices/example.com~gpu/0/zones", [7], "zones[0]: 7: write ids of zones: 0, 1"),
        ("devices/example.com~gpu/1/id", "gpu-0", "give each device a unique id"),
        ("devices/example.com~gpu/1/healthy", "no", "healthy: 'no': write true or false"),
    ],
)
def test_a_wrong_machine_file_is_refused_by_field_value_and_remedy(
    tmp_path: Path, path: str, value: object, said: str
) -> None:
    assert said in complaint(run(tmp_path, changed(path, value), [pod("a")]))


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        (
            [pod("a", cpu="two")],
            "document 1: spec.containers[0].resources.limits.cpu: 'two': write a quantity",
        ),
        ([pod("a"), pod("a")], "'default/a' is used twice"),
        ([], "has 0 pods"),
        (
            [{"kind": "Deployment"}],
            "document 1: spec.template: None: give the Deployment a pod template",
        ),
        ([{"kind": "Deploymint"}], "document 1: kind: 'Deploymint': write a Pod, Deployment"),
        ([{"kind": "Service", "metadata": {"name": "web"}}], "has 0 pods"),
        (["text"], "document 1: "),
    ],
)
def test_a_wrong_pod_file_is_refused_by_field_value_and_remedy(
    tmp_path: Path, pods: list[object], said: str
) -> None:
    assert said in complaint(run(tmp_path, MACHINE, pods))


@pytest.mark.parametrize("text", ["{", "a: [1", "\x00", "- &a [*a", "[" * 20000])
def test_a_machine_file_that_is_no_yaml_is_refused(tmp_path: Path, text: str) -> None:
    assert "YAML" in complaint(run(tmp_path, text, [pod("a")]))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["admit", "--machine", str(tmp_path / "none.yaml"), "--pods", "x"]
    )
    assert "none.yaml: no such file or folder" in complaint(result)


@pytest.mark.parametrize(
    ("eviction", "admitted"),
    [
        ({}, False),
        ({"evictionHard": {"nodefs.available": "10%"}}, True),
        (
            {
                "evictionHard": {"nodefs.available": "10%"},
                "mergeDefaultEvictionSettings": True,
            },
            False,
        ),
        ({"evictionHard": {"memory.available": "100%"}}, True),
        ({"evictionHard": {"memory.available": "1Mi"}}, False),
    ],
)
def test_a_given_map_of_thresholds_replaces_the_defaults(
    tmp_path: Path, eviction: dict[str, Any], admitted: bool
) -> None:
    """A pod that requests all of the machine's memory shows the reserved amount."""
    machine = {"zones": [{"id": 0, "cpus": "0-3", "memory": "1Gi"}], "kubelet": eviction}
    result = run(tmp_path, machine, [pod("a", cpu="1", memory="1Gi")])
    assert (result.exit_code == 0) == admitted, result.output


def test_hugepages_of_a_size_that_the_machine_lacks_are_out(tmp_path: Path) -> None:
    machine = {"zones": [{"id": 0, "cpus": "0-3", "memory": "4Gi", "hugepages": {"1Gi": 1}}]}
    asks = pod("a", cpu="1", memory="64Mi", **{"hugepages-2Mi": "2Mi"})
    result = run(tmp_path, machine, [asks])
    assert result.exit_code == 3
    assert "OutOfhugepages-2Mi" in result.output


def test_an_init_container_that_pins_the_zone_is_named_with_a_remedy_that_helps(
    tmp_path: Path,
) -> None:
    machine = {
        "zones": [
            {"id": 0, "cpus": "0-15", "memory": "64Gi"},
            {"id": 1, "cpus": "16-31", "memory": "64Gi"},
        ],
        "kubelet": {
            "topologyManagerPolicy": "single-numa-node",
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0-2",
        },
    }
    asks = pod("a", cpu="14", memory="1Gi")
    init = {"name": "warm", "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    asks["spec"]["initContainers"] = [init]
    result = run(tmp_path, machine, [asks])
    assert result.exit_code == 3
    assert "init container warm is placed first" in result.output
    assert "if it requests 999m cpu" in result.output
    init["resources"] = {"limits": {"cpu": "999m", "memory": "1Gi"}}
    assert run(tmp_path, machine, [asks]).exit_code == 0


@pytest.mark.parametrize(
    ("container", "note"),
    [
        ({"requests": {"cpu": "4"}}, "the pod is Burstable (container c has no cpu limit)"),
        (
            {"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "2"}},
            "the pod is Burstable (container c requests less cpu than its limit)",
        ),
        (
            {"limits": {"cpu": "1500m", "memory": "1Gi"}},
            "container c requests 1500m cpu, which is not a whole number",
        ),
    ],
)
def test_a_pod_with_shared_cpus_says_why_nothing_is_pinned(
    tmp_path: Path, container: dict[str, Any], note: str
) -> None:
    asks = pod("a")
    asks["spec"]["containers"][0]["resources"] = container
    result = run(tmp_path, MACHINE, [asks])
    assert result.exit_code == 0
    assert f"CPUs are shared, nothing is pinned: {note}" in " ".join(result.output.split())
    parsed = json.loads(run(tmp_path, MACHINE, [asks], "--json").output)
    assert note in parsed["note"]


def test_a_volcano_job_is_its_tasks_pods_and_other_groups_are_refused(tmp_path: Path) -> None:
    template = {"spec": pod("x", cpu="1", memory="1Gi")["spec"]}
    job: dict[str, Any] = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"tasks": [{"name": "worker", "replicas": 2, "template": template}]},
    }
    lines = run(tmp_path, MACHINE, [job], "--json").output.splitlines()
    assert [json.loads(line)["pod"] for line in lines] == [
        "default/train-worker-0",
        "default/train-worker-1",
    ]
    job["apiVersion"] = "example.com/v1"
    assert "a Job of group example.com is not read" in complaint(run(tmp_path, MACHINE, [job]))


def test_unknown_memory_of_a_machine_is_asked_for_and_never_zero(tmp_path: Path) -> None:
    """A kernel without NUMA has no zone folders; a copied tree has no /proc/meminfo."""
    sysfs = tmp_path / "sys"
    online = sysfs / "devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0-3\n")
    options = ["admit", "--describe", "--sysfs", str(sysfs), "--kubelet-config", "/nonexistent"]
    machine = tmp_path / "machine.yaml"
    described = CliRunner().invoke(app, options).stdout
    assert "memory: '0'" not in described
    assert "add it to the zone" in described
    machine.write_text(described)
    pods = tmp_path / "pods.yaml"
    pods.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}"
    )
    admit = ["admit", "--machine", str(machine), "--pods", str(pods)]
    assert "zones[0].memory" in complaint(CliRunner().invoke(app, admit))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:        4096 kB\n")
    described = CliRunner().invoke(app, options).stdout
    assert "memory: '4194304'" in described
    machine.write_text(described)
    assert CliRunner().invoke(app, admit).exit_code == 0
