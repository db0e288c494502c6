"""kustomize builds every overlay of k8s/ whole, and each has what its README promises."""

import shutil
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from services.embedded.binaries import find_nats_server, find_postgres
from shared.bus.pod_tokens import AUDIENCE
from shared.eventlog.postgres_connection import PRUNER, WRITER
from shared.eventlog.postgres_logins import KEEPER, SERVICE
from shared.kube.rights import (
    BY_SERVICE,
)
from tests.deploy.manifests import (
    COMPONENTS,
    K8S,
    KUSTOMIZATION,
    OVERLAYS,
    SERVERS,
    WORKLOADS,
    Document,
    built,
    called,
    containers,
    kustomization,
    name_of,
    of_kind,
    pod_of,
    secrets_of,
)

OF_THE_CLUSTER = (
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "SecurityContextConstraints",
)


# Components that no overlay of ours includes, apart from those for one kind of kubelet.
OPTIONAL = {
    "agent",
    "archive-bucket",
    "cell",
    "cloudnative-pg",
    "console",
    "defragment",
    "exporter-devices",
    "exporter-dra",
    "exporter-readiness",
    "extender",
    "http-tls",
    "opentelemetry",
    "reservations",
    "startup-taint",
}


def check_whole(objects: list[Document]) -> None:
    """Check what every installation needs: one namespace, no object twice, only references to
    secrets of known names, and one image.
    """
    keys = [
        (document["kind"], document["metadata"].get("namespace", ""), name_of(document))
        for document in objects
    ]
    assert len(set(keys)) == len(keys)
    assert {namespace for kind, namespace, _name in keys if kind not in OF_THE_CLUSTER} == {
        "topolog"
    }
    accounts = {name_of(document) for document in objects if document["kind"] == "ServiceAccount"}
    images = set()
    for document in objects:
        for subject in document.get("subjects", []):
            assert (subject["namespace"], subject["name"] in accounts) == ("topolog", True)
        template: dict[str, Any] = (
            document.get("spec", {}).get("template", {})
            if document["kind"] != "CustomResourceDefinition"
            else {}
        )
        images |= {
            container["image"] for container in template.get("spec", {}).get("containers", [])
        }
    assert len(images - SERVERS) == 1


def test_production_runs_no_server_of_the_wheels() -> None:
    """The bundled servers are for `topolog up`, tests and the exporters' logins of a trial."""
    for document in built(K8S / "overlays" / "production"):
        if document["kind"] in WORKLOADS:
            for container in containers(document):
                assert not {"services.embedded.run_postgres", "services.embedded.run_nats"} & {
                    *container.get("command", [])
                }


def test_the_official_servers_are_of_the_bundled_versions() -> None:
    version = subprocess.run(
        [find_nats_server(), "--version"], capture_output=True, text=True, check=True
    )
    assert f"nats:{version.stdout.strip().rpartition('v')[2]}" in SERVERS
    postgres = find_postgres().folder / "postgres"
    version = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True)
    assert f"postgres:{version.stdout.split()[2]}" in SERVERS


@pytest.mark.parametrize("overlay", OVERLAYS, ids=called)
def test_kustomize_builds_an_overlay(overlay: Path) -> None:
    check_whole(built(overlay))


def test_the_overlay_for_development_brings_every_secret_that_it_uses() -> None:
    objects = built(K8S / "overlays" / "dev")
    made = {
        (name_of(document), key)
        for document in objects
        if document["kind"] == "Secret"
        for key in document["data"]
    }
    references = [
        secret
        for document in objects
        if document["kind"] in WORKLOADS
        for secret in secrets_of(document)
    ]
    needed = {(name, key) for name, key, optional in references if not optional}
    assert needed <= made <= {(name, key) for name, key, _optional in references}


def test_a_trial_leaves_most_of_a_small_machine_to_pods() -> None:
    """On a node with two CPUs, one of them exclusive, a pod that requests that CPU fits, too."""
    started = [
        document for document in built(K8S / "overlays" / "dev") if document["kind"] in WORKLOADS
    ]
    asked = [
        container["resources"]["requests"]["cpu"]
        for document in started
        for container in containers(document)
    ]
    assert all(part.endswith("m") for part in asked)
    assert sum(int(part.removesuffix("m")) for part in asked) <= 400


def test_in_the_overlay_for_development_each_exporter_logs_in_by_its_pods_token() -> None:
    objects = built(K8S / "overlays" / "dev")
    secrets = {
        name_of(document): document["data"] for document in objects if document["kind"] == "Secret"
    }
    url = urlsplit(b64decode(secrets["topolog-nats"]["exporter-url"]).decode())
    (exporter,) = [document for document in objects if document["kind"] == "DaemonSet"]
    (mount,) = [
        mount
        for container in containers(exporter)
        for mount in container["volumeMounts"]
        if mount["name"] == "nats-token"
    ]
    (volume,) = [volume for volume in pod_of(exporter)["volumes"] if volume["name"] == "nats-token"]
    (source,) = volume["projected"]["sources"]
    assert url.username is None
    assert url.query == f"token={mount['mountPath']}/{source['serviceAccountToken']['path']}"
    assert source["serviceAccountToken"]["audience"] == AUDIENCE
    assert pod_of(exporter)["automountServiceAccountToken"] is False
    (nats,) = [
        document
        for document in objects
        if document["kind"] == "StatefulSet" and name_of(document) == "nats"
    ]
    variables = {
        variable["name"]: variable.get("value")
        for container in containers(nats)
        for variable in container["env"]
    }
    assert (
        variables["TOPOLOG_NATS_LOGINS"]
        == f"system:serviceaccount:$(POD_NAMESPACE):{pod_of(exporter)['serviceAccountName']}"
    )
    assert pod_of(nats)["automountServiceAccountToken"] is True
    (policy,) = [
        document
        for document in objects
        if document["kind"] == "NetworkPolicy" and name_of(document) == "nats"
    ]
    assert {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]} >= {
        443,
        6443,
    }


def test_the_exporter_alone_needs_nothing_else_of_topolog() -> None:
    objects = built(K8S / "overlays" / "exporter-only")
    kinds = {
        (document["kind"], name_of(document))
        for document in objects
        if document["kind"] not in ("Namespace", "CustomResourceDefinition")
    }
    roles = {(kind, "topolog-exporter-objects") for kind in ("ClusterRole", "ClusterRoleBinding")}
    assert (
        kinds == {(kind, "exporter") for kind in ("ServiceAccount", "Service", "DaemonSet")} | roles
    )
    (container,) = containers(
        next(document for document in objects if document["kind"] == "DaemonSet")
    )
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables["TOPOLOG_PUBLISH"] == "nrt"
    assert not [name for name in variables if name.startswith("TOPOLOG_NATS_URL")]
    assert "topolog-nats'" not in str(objects), "the secret is not there"


def test_production_has_two_of_each_service_spread_and_protected() -> None:
    objects = built(K8S / "overlays" / "production")
    deployments = {
        name_of(document): document for document in objects if document["kind"] == "Deployment"
    }
    budgets = {
        name_of(document) for document in objects if document["kind"] == "PodDisruptionBudget"
    }
    assert set(deployments) == {"topology-store", "scheduler", "binder"}
    assert set(deployments) | {"nats"} == budgets
    for name, document in deployments.items():
        assert document["spec"]["replicas"] == 2
        assert document["spec"]["strategy"]["type"] == "RollingUpdate", (
            "left out, each apply takes it away and finds it changed"
        )
        (spread,) = pod_of(document)["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"] == {"app": name}


def chosen() -> set[str]:
    """Components that our overlays include, built with them."""
    return {
        Path(entry).name for overlay in OVERLAYS for entry in kustomization(overlay)["components"]
    }


@pytest.mark.parametrize(
    "kubelet", ["kubelet-k3s", "kubelet-rke2", "kubelet-openshift", "kubelet-eks"]
)
def test_the_other_components_build_on_top_of_production_under_one_image(
    kubelet: str, tmp_path: Path
) -> None:
    copy = tmp_path / "k8s"
    shutil.copytree(K8S, copy)
    overlay = copy / "overlays" / "more"
    overlay.mkdir()
    others = {
        folder.name
        for folder in COMPONENTS
        if not folder.name.startswith("kubelet-") and folder.name != "runbooks"
    } - chosen()
    assert others == OPTIONAL
    more = {
        "resources": ["../production"],
        "components": [f"../../components/{name}" for name in sorted(others | {kubelet})],
        "images": [{"name": "topolog", "newName": "registry.example.com/topolog", "newTag": "1"}],
    }
    (overlay / KUSTOMIZATION).write_text(yaml.safe_dump(more))
    objects = built(overlay)
    check_whole(objects)
    assert "topolog-postgres-owner" not in str(
        [document for document in objects if document["kind"] == "CronJob"]
    ), "is not made there"
    nodes = {name_of(entry): entry for entry in objects if entry["kind"] == "DaemonSet"}
    assert nodes.keys() == {"agent", "exporter"}
    exporter = nodes["exporter"]
    (container,) = containers(exporter)
    assert container["image"] == "registry.example.com/topolog:1"
    assert {"name": "TOPOLOG_AGENT_DIR", "value": "/agent"} in container["env"]
    options = {
        "kubelet-openshift": "--kubelet-config=/kubelet/config",
        "kubelet-eks": "--host-root=/host",
    }
    assert options.get(kubelet, "--kubelet-config-dir=/kubelet/config") in container["command"]
    assert [gate["conditionType"] for gate in pod_of(exporter)["readinessGates"]] == [
        "PodresourcesFetched",
        "NodeTopologyUpdated",
    ]
    assert [443, 6443] in egress_ports_of_exporters(objects)
    check_tls(
        [
            document
            for document in objects
            if name_of(document) in BY_SERVICE and document["kind"] in ("Deployment", "DaemonSet")
        ]
    )


def egress_ports_of_exporters(objects: list[Document]) -> list[list[int]]:
    """Return the ports of each egress rule for exporters."""
    (policy,) = [
        document
        for document in objects
        if document["kind"] == "NetworkPolicy" and name_of(document) == "exporter"
    ]
    return [[port["port"] for port in rule.get("ports", [])] for rule in policy["spec"]["egress"]]


def check_tls(workloads: list[Document]) -> None:
    """Each service shows the certificate of the README's secret, if its settings
    name it; probes by TLS too.
    """
    readme = (K8S / "README.md").read_text(encoding="utf-8")
    assert len(workloads) == len(BY_SERVICE)
    for workload in workloads:
        (container,) = containers(workload)
        variables = {variable["name"]: variable.get("value", "") for variable in container["env"]}
        (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "http-tls"]
        (volume,) = [
            volume for volume in pod_of(workload)["volumes"] if volume["name"] == "http-tls"
        ]
        mounted = {f"{mount['mountPath']}/{item['path']}" for item in volume["secret"]["items"]}
        assert {
            variables[f"TOPOLOG_HTTP_TLS_{part}"] for part in ("CERTIFICATE", "KEY", "CLIENT_CA")
        } == mounted
        assert {
            container[probe]["httpGet"]["scheme"] for probe in ("livenessProbe", "readinessProbe")
        } == {"HTTPS"}
        assert f"create secret generic {volume['secret']['secretName']}" in readme
        assert all(
            f"--from-file=http-tls/{item['key']}" in readme for item in volume["secret"]["items"]
        )


def test_a_second_cell_shares_no_object_with_the_first(tmp_path: Path) -> None:
    """The overlay of k8s/README.md: its accounts have the rights, and its services the setting."""
    (example,) = [
        text.partition("```")[0]
        for text in (K8S / "README.md").read_text().split("```yaml\n")[1:]
        if "components/cell" in text.partition("```")[0]
    ]
    shutil.copytree(K8S, tmp_path / "k8s")
    overlay = tmp_path / "k8s" / "overlays" / "cell-b"
    overlay.mkdir()
    (overlay / KUSTOMIZATION).write_text(example)
    first, second = built(K8S / "overlays" / "production"), built(overlay)

    def keys(objects: list[Document]) -> set[tuple[str, str, str]]:
        metadata = [(each["kind"], each["metadata"]) for each in objects]
        return {(kind, of.get("namespace", ""), of["name"]) for kind, of in metadata}

    assert not keys(first) & keys(second)
    accounts = {name_of(each) for each in second if each["kind"] == "ServiceAccount"}
    for binding in (each for each in second if each["kind"] == "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        assert subject["namespace"] == "topolog-b"
        assert subject["name"] in accounts
    (config,) = [each for each in second if each["kind"] == "ConfigMap"]
    assert (config["data"]["cell"], "{name: a}" in config["data"]["cells"]) == ("b", True)
    for service in ("scheduler-b", "topology-store-b"):
        (deployment,) = [
            each for each in second if (each["kind"], name_of(each)) == ("Deployment", service)
        ]
        env = {of["name"]: of for each in containers(deployment) for of in each["env"]}
        for variable, key in (("TOPOLOG_CELL", "cell"), ("TOPOLOG_CELLS", "cells")):
            reference = env[variable]["valueFrom"]["configMapKeyRef"]
            assert reference == {"name": name_of(config), "key": key}
    assert not [each for each in second if each["kind"] == "DaemonSet"]
    labels = {"topolog.io/cells": "true"}
    (namespace,) = [each for each in second if each["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"].items() >= labels.items()
    policies = {name_of(each): each for each in first if each["kind"] == "NetworkPolicy"}
    assert _namespaces(policies["nats"], "ingress", "from") == [labels]
    own_policies = {name_of(each): each for each in second if each["kind"] == "NetworkPolicy"}
    assert labels in _namespaces(own_policies["services-b"], "egress", "to")


def _namespaces(policy: Document, direction: str, peers: str) -> list[dict[str, str]]:
    """Return the labels of namespaces with which a policy allows connections."""
    rules = policy["spec"][direction]
    selectors = [peer.get("namespaceSelector") for rule in rules for peer in rule.get(peers, ())]
    return [selector["matchLabels"] for selector in selectors if selector]


def test_the_archive_gets_no_credentials_of_the_owner() -> None:
    """Its login may archive and prune what everything has passed, with Postgres by the operator,
    too.
    """
    (job,) = of_kind("CronJob", folder="components/archive")
    volumes = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
    secrets = [volume["secret"]["secretName"] for volume in volumes if "secret" in volume]
    assert secrets == ["topolog-postgres-keeper"]
    patched = [
        patch["target"].get("name")
        for patch in kustomization(K8S / "components" / "cloudnative-pg")["patches"]
    ]
    assert "archive" not in patched
    (cluster,) = of_kind("Cluster", folder="components/cloudnative-pg")
    logins = {role["name"]: role["inRoles"] for role in cluster["spec"]["managed"]["roles"]}
    assert logins == {KEEPER: [PRUNER], SERVICE: [WRITER]}
    assert (
        f"CREATE ROLE {PRUNER} NOLOGIN IN ROLE topolog_reader"
        in (cluster["spec"]["bootstrap"]["initdb"]["postInitSQL"])
    )
