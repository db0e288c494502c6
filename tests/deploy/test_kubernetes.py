"""The manifests in k8s/ parse, refer only to existing objects, and grant each service exactly the
rights that its calls need. kustomize builds every overlay.
"""

import importlib.util
import re
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from services.agent.settings import AgentSettings
from shared.kube.rights import (
    BY_SERVICE,
    CELL,
    DEFRAGMENT,
    EXPORTER_DEVICES,
    EXPORTER_OBJECTS,
    EXPORTER_READINESS,
    EXPORTER_SLICES,
    NATS_LOGINS,
    RESERVATIONS,
    STARTUP_TAINT,
    Right,
)
from shared.runtime.settings import names as settings_names
from tests.deploy.manifests import (
    COMPONENTS,
    K8S,
    KUSTOMIZATION,
    KUSTOMIZATIONS,
    OVERLAYS,
    ROOT,
    SERVERS,
    Document,
    built,
    called,
    containers,
    documents,
    files,
    kustomization,
    name_of,
    of_kind,
    pod_of,
    secrets_of,
    workloads,
)

OF_THE_CLUSTER = (
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "SecurityContextConstraints",
)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(K8S)))
def test_every_file_holds_kubernetes_objects_and_leaves_their_namespace_to_kustomize(
    path: Path,
) -> None:
    for document in documents(path):
        assert {"apiVersion", "kind", "metadata"} <= document.keys()
        assert document["metadata"]["name"]
        assert "namespace" not in document["metadata"]


@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=called)
def test_a_kustomization_names_exactly_the_files_of_its_folder(folder: Path) -> None:
    content = kustomization(folder)
    named = content.get("resources", []) + content.get("components", [])
    assert all((folder / entry).exists() for entry in named)
    assert {path.name for path in folder.glob("*.yaml")} - {KUSTOMIZATION} <= set(named)
    assert (content["kind"] == "Component") == (folder in COMPONENTS)


@pytest.mark.parametrize("folder", COMPONENTS, ids=called)
def test_a_component_brings_its_objects_into_the_namespace_of_the_services(folder: Path) -> None:
    """In an overlay without a namespace they would be created in `default`."""
    content = kustomization(folder)
    kinds = {
        document["kind"]
        for entry in content.get("resources", [])
        for document in documents(folder / entry)
    }
    assert (
        content.get("namespace", "topolog" if kinds <= set(OF_THE_CLUSTER) else None) == "topolog"
    )


def test_the_image_is_named_in_overlays_alone_and_once_in_each() -> None:
    used = {container["image"] for workload in workloads() for container in containers(workload)}
    assert used == {"topolog", *SERVERS}
    for folder in KUSTOMIZATIONS:
        assert [image["name"] for image in kustomization(folder).get("images", [])] == (
            ["topolog"] if folder in OVERLAYS else []
        )


def rights(role: Document) -> set[Right]:
    return {
        Right(group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def granted(folder: str) -> dict[str, set[Right]]:
    roles = {name_of(role): role for role in of_kind("ClusterRole", folder=folder)}
    rights_by_account: dict[str, set[Right]] = {
        name_of(account): set() for account in of_kind("ServiceAccount", folder=folder)
    }
    for binding in of_kind("ClusterRoleBinding", folder=folder):
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", "topolog")
            rights_by_account.setdefault(subject["name"], set()).update(
                rights(roles.pop(binding["roleRef"]["name"]))
            )
    assert roles == {}, "a role that nobody is bound to"
    return rights_by_account


def test_each_account_has_the_rights_of_its_calls_and_no_others() -> None:
    assert granted("base") == {**BY_SERVICE, "migrations": set()}


def test_an_exporter_may_write_conditions_in_its_namespace_only_with_the_component() -> None:
    (role,) = of_kind("Role")
    (binding,) = of_kind("RoleBinding")
    assert (of_kind("Role", "RoleBinding", folder="components/exporter-readiness")) == [
        role,
        binding,
    ]
    assert rights(role) == EXPORTER_READINESS
    assert (binding["roleRef"]["name"], [subject["name"] for subject in binding["subjects"]]) == (
        name_of(role),
        ["exporter"],
    )


def test_components_grant_what_is_named_here_and_nothing_else() -> None:
    more = {
        (folder.name, account): account_rights
        for folder in COMPONENTS
        for account, account_rights in granted(called(folder)).items()
        if account_rights
    }
    assert more == {
        ("cell", "scheduler"): CELL,
        ("startup-taint", "topology-store"): STARTUP_TAINT,
        ("defragment", "scheduler"): DEFRAGMENT,
        ("reservations", "topology-store"): RESERVATIONS,
        ("exporter-objects", "exporter"): EXPORTER_OBJECTS,
        ("exporter-devices", "exporter"): EXPORTER_DEVICES,
        ("exporter-dra", "exporter"): EXPORTER_SLICES,
        ("exporter-tokens", "nats"): NATS_LOGINS,
    }


def test_only_the_binder_writes_pods_and_the_scheduler_writes_nothing() -> None:
    writes = {"create", "update", "patch", "delete", "deletecollection", "*"}
    for account, service_rights in BY_SERVICE.items():
        written = {right.resource for right in service_rights if right.verb in writes}
        assert account == "binder" or not any(resource.startswith("pods") for resource in written)
        assert account != "scheduler" or not written


def test_an_account_without_rights_gets_no_token() -> None:
    for account in of_kind("ServiceAccount"):
        assert account.get("automountServiceAccountToken", True) == bool(
            BY_SERVICE.get(name_of(account))
        )


@pytest.mark.parametrize("workload", workloads(), ids=name_of)
def test_every_workload_runs_what_exists_under_its_own_account(workload: Document) -> None:
    name = name_of(workload)
    assert pod_of(workload)["serviceAccountName"] == name
    selector = workload["spec"].get("selector", {}).get("matchLabels")
    assert (
        selector == workload["spec"]["template"]["metadata"]["labels"] or workload["kind"] == "Job"
    )
    for container in containers(workload):
        if container["image"] in SERVERS:
            assert "command" not in container, "the image's own"
            continue
        assert container["command"][:2] == ["python", "-m"]
        module = container["command"][2]
        assert importlib.util.find_spec(module) is not None
        assert (
            module.startswith("services.embedded.run_")
            or importlib.util.find_spec(f"{module}.__main__") is not None
        )
    mounts = {
        mount["name"]
        for container in containers(workload)
        for mount in container.get("volumeMounts", [])
    }
    claims = {name_of(claim) for claim in workload["spec"].get("volumeClaimTemplates", [])}
    assert mounts == {volume["name"] for volume in pod_of(workload)["volumes"]} | claims


@pytest.mark.parametrize("workload", workloads(), ids=name_of)
def test_no_container_can_gain_privileges(workload: Document) -> None:
    pod = pod_of(workload)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any(pod.get(host) for host in ("hostNetwork", "hostPID", "hostIPC"))
    for container in containers(workload):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        is_root = context.get("runAsUser", pod["securityContext"].get("runAsUser")) == 0
        assert is_root == (name_of(workload) in ("exporter", "agent"))


def test_only_exporter_and_agent_mount_folders_of_the_node_and_read_them() -> None:
    mounted = {
        name_of(workload): sorted(
            v["hostPath"]["path"] for v in pod_of(workload)["volumes"] if "hostPath" in v
        )
        for workload in workloads()
    }
    assert mounted.pop("exporter") == [
        "/proc",
        "/sys",
        "/var/lib/kubelet",
        "/var/lib/kubelet/pod-resources",
    ]
    assert mounted.pop("agent") == [
        "/proc",
        "/run/topolog",
        "/sys/devices/system",
        "/sys/fs/cgroup",
        "/var/lib/kubelet",
        "/var/run/nri",
    ]
    assert not any(mounted.values())
    for name, written in (("exporter", {"tmp"}), ("agent", {"tmp", "agent"})):
        (workload,) = [workload for workload in workloads() if name_of(workload) == name]
        (container,) = containers(workload)
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert mounts["kubelet-state"]["mountPropagation"] == "HostToContainer", (
            "volumes of pods that ended would stay mounted here, and undetachable"
        )
        writable = {name for name, mount in mounts.items() if not mount.get("readOnly")}
        assert writable == written, (
            "a client writes nothing in the folder of a socket (Linux asks for the socket's mode)"
        )


def test_the_agent_writes_where_the_exporter_reads() -> None:
    patches = kustomization(K8S / "components" / "agent")["patches"]
    operations = yaml.safe_load(patches[0]["patch"])
    variable, mount, volume = (operation["value"] for operation in operations)
    (agent,) = workloads("components/agent")
    (container,) = containers(agent)
    folders = {entry["name"]: entry for entry in pod_of(agent)["volumes"]}
    assert volume == folders["agent"]
    assert variable == {"name": "TOPOLOG_AGENT_DIR", "value": mount["mountPath"]}
    assert variable in container["env"]
    declared = settings_names(AgentSettings)
    assert {entry["name"] for entry in container["env"]} <= declared


def test_liveness_asks_for_what_a_restart_cures_and_readiness_for_the_rest() -> None:
    for workload in workloads("base"):
        for container in containers(workload):
            if workload["kind"] != "Job":
                assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
                assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_only_the_migration_gets_the_owners_credentials() -> None:
    for workload in workloads("base"):
        names = {name for name, _key, _optional in secrets_of(workload)}
        assert ("topolog-postgres-owner" in names) == (workload["kind"] == "Job")
        assert "initContainers" not in pod_of(workload)


def secrets_used() -> set[tuple[str, str]]:
    return {
        (name, key) for workload in workloads() for name, key, _optional in secrets_of(workload)
    }


def test_secrets_come_by_reference_and_are_those_the_readme_makes() -> None:
    readme = (K8S / "README.md").read_text(encoding="utf-8")
    assert of_kind("Secret") == []
    for name, key in secrets_used() - {("topolog-postgres-owner", "password")}:
        assert f"create secret generic {name}" in readme
        assert f"--from-literal={key}=" in readme
    for workload in workloads():
        for variable in (v for container in containers(workload) for v in container.get("env", [])):
            # NATS' own server takes passwords from its environment alone; Topolog's programs read
            # files, again and again.
            if "PASSWORD" in variable["name"] or variable["name"].endswith("_URL"):
                by_file = variable["name"].endswith("_FILE")
                assert by_file or name_of(workload) == "nats"
                assert (
                    by_file
                    or "secretKeyRef" in variable.get("valueFrom", {})
                    or "$(" in variable["value"]
                )


def test_services_point_at_ports_that_their_pods_open() -> None:
    for folder in ("base", *(called(component) for component in COMPONENTS)):
        pods = {name_of(workload): workload for workload in workloads(folder)}
        for service in of_kind("Service", folder=folder):
            ports = [
                p
                for c in containers(pods[service["spec"]["selector"]["app"]])
                for p in c.get("ports", [])
            ]
            opened = {port["containerPort"] for port in ports} | {port["name"] for port in ports}
            assert {
                port.get("targetPort", port["port"]) for port in service["spec"]["ports"]
            } <= opened


def test_metrics_that_leave_loopback_ask_for_a_token_which_prometheus_carries() -> None:
    secret = {"name": "topolog-http", "key": "token"}
    open_to_all = 0
    for workload, container in (
        (item, container) for item in workloads("base") for container in containers(item)
    ):
        env = {variable["name"]: variable for variable in container["env"]}
        if "TOPOLOG_HTTP_HOST" in env:
            open_to_all += 1
            (mount,) = [
                mount for mount in container["volumeMounts"] if mount["name"] == "http-token"
            ]
            assert env["TOPOLOG_HTTP_TOKEN_FILE"]["value"] == f"{mount['mountPath']}/token"
            assert "TOPOLOG_HTTP_TOKEN" not in env, (
                "a token in the environment would win, and cannot be rotated"
            )
            (volume,) = [
                volume for volume in pod_of(workload)["volumes"] if volume["name"] == "http-token"
            ]
            assert volume["secret"] == {
                "secretName": secret["name"],
                "items": [{"key": secret["key"], "path": "token"}],
            }
    assert open_to_all == 4
    for monitor in of_kind("ServiceMonitor"):
        assert [
            endpoint["authorization"]["credentials"] for endpoint in monitor["spec"]["endpoints"]
        ] == [secret]


def test_clients_of_nats_find_its_authority_where_their_urls_name_it() -> None:
    readme = (K8S / "README.md").read_text(encoding="utf-8")
    for workload in workloads("base"):
        for container in containers(workload):
            if any(
                variable["name"] == "TOPOLOG_NATS_URL_FILE" for variable in container.get("env", [])
            ):
                (mount,) = [
                    mount for mount in container["volumeMounts"] if mount["name"] == "nats-ca"
                ]
                (volume,) = [
                    volume for volume in pod_of(workload)["volumes"] if volume["name"] == "nats-ca"
                ]
                assert [item["key"] for item in volume["secret"]["items"]] == ["ca.crt"], (
                    "its key is for the server alone"
                )
                assert f"ca={mount['mountPath']}/ca.crt" in readme


def test_the_cluster_of_nats_servers_speaks_tls_by_the_certificates_of_the_command(
    tmp_path: Path,
) -> None:
    """The real server reads the real configuration, with certificates that the command makes."""
    from services.cli.certificates import IN_A_CLUSTER
    from services.embedded.binaries import find_nats_server
    from services.embedded.certificates import ensure
    from services.embedded.nats_credentials import keep

    (config,) = of_kind("ConfigMap", folder="components/nats-cluster")
    ensure(tmp_path, IN_A_CLUSTER)
    keep(tmp_path / "nats-users", [("n1", ["n1"])])
    text = (
        config["data"]["nats.conf"]
        .replace("/etc/nats-tls", str(tmp_path))
        .replace("/var/lib/topolog", str(tmp_path / "data"))
    )
    text = text.replace("../nats-users", "nats-users")
    (tmp_path / "nats.conf").write_text(text)
    (server,) = workloads("components/nats-cluster")
    (container,) = containers(server)
    names = {
        variable["name"]: str(variable.get("value", "x")).replace("$(ROUTE_PASSWORD)", "x")
        for variable in container["env"]
    }
    routes = {name: value for name, value in names.items() if re.fullmatch(r"ROUTE_\d", name)}
    assert all(value.startswith('"tls://') for value in routes.values())
    assert {urlsplit(value.strip('"')).hostname for value in routes.values()} <= set(IN_A_CLUSTER)
    completed = subprocess.run(
        [find_nats_server(), "-t", "-c", str(tmp_path / "nats.conf")],
        env=names,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert text.count("tls {") == 2


def test_in_production_an_exporter_sees_the_seed_of_its_own_node_where_its_url_names_it() -> None:
    readme = (K8S / "README.md").read_text(encoding="utf-8")
    (exporter,) = [
        document
        for document in built(K8S / "overlays" / "production")
        if document["kind"] == "DaemonSet"
    ]
    (mount,) = [
        mount
        for container in containers(exporter)
        for mount in container["volumeMounts"]
        if mount["name"] == "nats-seed"
    ]
    assert mount["subPathExpr"] == "$(NODE_NAME).nk"
    assert f"seed={mount['mountPath']}" in readme
    (volume,) = [volume for volume in pod_of(exporter)["volumes"] if volume["name"] == "nats-seed"]
    assert volume["secret"] == {"secretName": "topolog-nats-exporters", "defaultMode": 0o400}
    assert "secret generic topolog-nats-exporters" in readme
    assert "exporter-password" not in str(built(K8S / "overlays" / "production"))


def test_with_the_operator_the_owners_url_is_in_the_operators_secret() -> None:
    patches = kustomization(K8S / "components" / "cloudnative-pg")["patches"]
    (patch,) = [patch for patch in patches if patch["target"]["name"] == "migrations"]
    (operation,) = yaml.safe_load(patch["patch"])
    (workload,) = of_kind("Job", folder="base")
    value: Any = workload
    for part in operation["path"].split("/")[1:]:
        value = value[int(part)] if part.isdigit() else value[part]
    assert value["name"] == operation["value"]["name"]
    assert [item["path"] for item in value["secret"]["items"]] == [
        item["path"] for item in operation["value"]["secret"]["items"]
    ]
    assert operation["value"]["secret"]["secretName"] == "topolog-db-app"


def test_a_closed_namespace_is_open_to_the_database_of_the_operator() -> None:
    """The default policy also applies to the operator's pods. Without rules of their own no pod
    reaches them, and they reach neither the API nor each other.
    """
    (cluster,) = of_kind("Cluster", folder="components/cloudnative-pg")
    (policy,) = of_kind("NetworkPolicy", folder="components/cloudnative-pg")
    instances = {"matchLabels": {"cnpg.io/cluster": name_of(cluster)}}
    (own_policy,) = [
        item
        for item in of_kind("NetworkPolicy", folder="components/network-policies")
        if name_of(item) == "postgres"
    ]
    assert policy["spec"]["podSelector"] == instances
    assert policy["spec"]["ingress"][0] == own_policy["spec"]["ingress"][0], (
        "whoever reaches the other Postgres"
    )
    operator = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "cloudnative-pg"}},
    }
    assert policy["spec"]["ingress"][1]["from"] == [{"podSelector": instances}, operator]
    assert [port["port"] for port in policy["spec"]["ingress"][1]["ports"]] == [5432, 8000]
    out = [
        (rule.get("to"), [port["port"] for port in rule["ports"]])
        for rule in policy["spec"]["egress"]
    ]
    assert out == [
        (None, [53, 53]),
        ([{"podSelector": instances}], [5432, 8000]),
        (None, [443, 6443]),
    ]


def test_dns_works_with_closed_policies_on_openshift() -> None:
    policies = {
        name_of(document): document["spec"]
        for document in of_kind("NetworkPolicy", folder="components/network-policies")
    }
    dns = policies["openshift-dns"]
    assert dns["podSelector"] == policies["default"]["podSelector"] == {}, (
        "whom the one closes in, the other lets ask"
    )
    (rule,) = dns["egress"]
    (peer,) = rule["to"]
    assert peer == {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}
    }
    assert rule["ports"] == [
        {"protocol": "UDP", "port": 5353},
        {"protocol": "TCP", "port": 5353},
    ], "the pods', not the Service's"


def test_services_in_production_refuse_open_ports_and_owners_logins() -> None:
    objects = built(K8S / "overlays" / "production")
    for document in objects:
        if document["kind"] in ("Deployment", "DaemonSet"):
            (container,) = containers(document)
            variables = {variable["name"]: variable.get("value") for variable in container["env"]}
            assert variables["TOPOLOG_PRODUCTION"] == "true"


def test_services_of_the_overlay_for_development_do_not_log_in_as_the_owner() -> None:
    secrets = {
        name_of(document): document["data"]
        for document in built(K8S / "overlays" / "dev")
        if document["kind"] == "Secret"
    }
    url = urlsplit(b64decode(secrets["topolog-postgres"]["url"]).decode())
    assert url.username == "topolog_service"
    assert b64decode(secrets["topolog-postgres-owner"]["service-password"]).decode() == url.password


def test_a_volume_that_was_opened_to_the_group_once_is_not_gone_through_at_each_start() -> None:
    """Otherwise the kubelet sets every folder of the volume to mode 2770, and Postgres refuses to
    use such a folder.
    """
    contexts = {
        name_of(workload): pod_of(workload)["securityContext"]
        for workload in workloads()
        if claims(workload)
    }
    assert {
        name: context["fsGroupChangePolicy"] for name, context in contexts.items()
    } == dict.fromkeys(("nats", "postgres"), "OnRootMismatch")


def claims(workload: Document) -> bool:
    return bool(workload["spec"].get("volumeClaimTemplates"))


def test_probes_ask_a_named_port_of_their_container() -> None:
    for container in (container for workload in workloads() for container in containers(workload)):
        names = {port["name"] for port in container.get("ports", [])}
        for probe in ("livenessProbe", "readinessProbe"):
            if "httpGet" in container.get(probe, {}):
                assert container[probe]["httpGet"]["port"] in names


def test_the_open_port_of_nats_is_reachable_for_probes_only() -> None:
    (nats,) = (
        container for workload in workloads("components/nats") for container in containers(workload)
    )
    variables = {variable["name"]: variable.get("value") for variable in nats["env"]}
    assert variables["TOPOLOG_NATS_MONITOR_HOST"] == "0.0.0.0"
    (monitor,) = (port["containerPort"] for port in nats["ports"] if port["name"] == "monitor")
    policies = documents(K8S / "components" / "network-policies" / "policies.yaml")
    open_ports = [
        port["port"]
        for policy in policies
        for rule in policy["spec"].get("ingress", [])
        for port in rule["ports"]
    ]
    assert 4222 in open_ports
    assert monitor not in open_ports


def test_the_readme_and_the_overlays_are_reached_from_the_projects_readme() -> None:
    assert "k8s/" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_extenders_sample_calls_served_verbs_and_waits_longer_than_a_binding_may_take() -> None:
    from services.scheduler.extender.settings import ExtenderSettings

    (sample,) = documents(K8S / "extender" / "kube-scheduler-config.yaml")
    (extender,) = sample["extenders"]
    (profile,) = sample["profiles"]
    component = (K8S / "components" / "extender" / "kustomization.yaml").read_text(encoding="utf-8")
    assert f"TOPOLOG_EXTENDER_SCHEDULERS, value: {profile['schedulerName']}}}" in component
    assert profile["schedulerName"] != "default-scheduler"
    assert {extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt", "bind")} == {
        "filter",
        "prioritize",
        "preempt",
        "bind",
    }
    assert float(extender["httpTimeout"].removesuffix("s")) > ExtenderSettings().bind_within_s
    assert extender["enableHTTPS"]
    assert not extender["ignorable"]
    assert extender["urlPrefix"].endswith(":8443")
