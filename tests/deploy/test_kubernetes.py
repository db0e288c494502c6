"""The Kubernetes manifests: they parse, hang together, and grant each service exactly what the table says."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "k8s").glob("*.yaml"))

RIGHTS: dict[str, set[tuple[str, str, str]]] = {
    "exporter": set(),
    "nats": set(),
    "topology-store": {("topology.node.k8s.io", "noderesourcetopologies", verb) for verb in ("list", "watch", "create", "patch")},
    "scheduler": {("", kind, verb) for kind in ("pods", "nodes") for verb in ("list", "watch")}
    | {("policy", "poddisruptionbudgets", verb) for verb in ("list", "watch")},
    "binder": {
        ("", "pods", "get"),
        ("", "pods/binding", "create"),
        ("", "pods/eviction", "create"),
        ("", "pods/status", "patch"),
        ("", "events", "create"),
    },
}
"""(API group, resource, verb) that each service account has: all that design and port need, and nothing else."""


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document is not None]


def everything() -> list[dict[str, Any]]:
    return [document for path in MANIFESTS for document in documents(path)]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [document for document in everything() if document["kind"] in kinds]


def workloads() -> list[dict[str, Any]]:
    return of_kind("Deployment", "DaemonSet")


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    return dict(workload["spec"]["template"]["spec"])


def containers(workload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pod = pod_of(workload)
    yield from pod.get("initContainers", [])
    yield from pod["containers"]


@pytest.mark.parametrize("path", sorted((ROOT / "k8s").rglob("*.yaml")), ids=lambda path: path.name)
def test_every_manifest_is_a_kubernetes_object(path: Path) -> None:
    for document in documents(path):
        assert {"apiVersion", "kind", "metadata"} <= document.keys()
        assert document["metadata"]["name"]
        cluster_wide = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
        assert (document["metadata"].get("namespace") == "topolog") == (document["kind"] not in cluster_wide)


def test_each_account_has_the_rights_of_the_table_and_no_others() -> None:
    roles = {role["metadata"]["name"]: role for role in of_kind("ClusterRole")}
    granted: dict[str, set[tuple[str, str, str]]] = {account["metadata"]["name"]: set() for account in of_kind("ServiceAccount")}
    for binding in of_kind("ClusterRoleBinding"):
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", "topolog")
            granted[subject["name"]] |= rights(roles.pop(binding["roleRef"]["name"]))
    assert granted == RIGHTS
    assert roles == {}, "a role that nobody is bound to"
    assert of_kind("Role", "RoleBinding") == []


def rights(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_only_the_binder_writes_pods_and_the_scheduler_writes_nothing() -> None:
    writes = {"create", "update", "patch", "delete", "deletecollection", "*"}
    for account, held in RIGHTS.items():
        written = {resource for _group, resource, verb in held if verb in writes}
        assert account == "binder" or not any(resource.startswith("pods") for resource in written)
        assert account != "scheduler" or not written


def test_an_account_without_rights_gets_no_token() -> None:
    for account in of_kind("ServiceAccount"):
        name = account["metadata"]["name"]
        assert account.get("automountServiceAccountToken", True) == bool(RIGHTS[name])


@pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload["metadata"]["name"])
def test_every_workload_runs_an_existing_module_under_its_own_account(workload: dict[str, Any]) -> None:
    name = workload["metadata"]["name"]
    assert pod_of(workload)["serviceAccountName"] == name
    assert workload["spec"]["selector"]["matchLabels"] == workload["spec"]["template"]["metadata"]["labels"]
    for container in containers(workload):
        assert container["command"][:2] == ["python", "-m"]
        module = container["command"][2]
        assert importlib.util.find_spec(module) is not None
        assert module.startswith("services.embedded.run_") or importlib.util.find_spec(f"{module}.__main__") is not None
    mounts = {mount["name"] for container in containers(workload) for mount in container.get("volumeMounts", [])}
    assert mounts == {volume["name"] for volume in pod_of(workload)["volumes"]}


@pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload["metadata"]["name"])
def test_no_container_can_gain_privileges(workload: dict[str, Any]) -> None:
    pod = pod_of(workload)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any(pod.get(host) for host in ("hostNetwork", "hostPID", "hostIPC"))
    for container in containers(workload):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        is_root = context.get("runAsUser", pod["securityContext"].get("runAsUser")) == 0
        assert is_root == (workload["metadata"]["name"] == "exporter")


def test_only_the_exporter_mounts_folders_of_the_node() -> None:
    mounted = {
        workload["metadata"]["name"]: sorted(v["hostPath"]["path"] for v in pod_of(workload)["volumes"] if "hostPath" in v)
        for workload in workloads()
    }
    assert mounted.pop("exporter") == ["/sys", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/pod-resources"]
    assert not any(mounted.values())


def test_secrets_come_by_reference_and_are_those_the_readme_makes() -> None:
    readme = (ROOT / "k8s" / "README.md").read_text(encoding="utf-8")
    assert of_kind("Secret") == []
    for workload in workloads():
        for variable in (v for container in containers(workload) for v in container.get("env", [])):
            if "PASSWORD" in variable["name"] or variable["name"].endswith("_URL"):
                reference = variable["valueFrom"]["secretKeyRef"]
                assert f"create secret generic {reference['name']}" in readme
                assert f"--from-literal={reference['key']}=" in readme


def test_services_point_at_ports_that_their_pods_open() -> None:
    pods = {workload["metadata"]["name"]: workload for workload in workloads()}
    for service in of_kind("Service"):
        opened = {p["containerPort"] for c in containers(pods[service["spec"]["selector"]["app"]]) for p in c.get("ports", [])}
        assert {port["port"] for port in service["spec"]["ports"]} <= opened


def test_probes_ask_a_named_port_of_their_container() -> None:
    for container in (container for workload in workloads() for container in containers(workload)):
        names = {port["name"] for port in container.get("ports", [])}
        for probe in ("livenessProbe", "readinessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["port"] in names
