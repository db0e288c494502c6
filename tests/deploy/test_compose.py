"""docker-compose.yml and Dockerfile: the subset of both Compose versions, sound references, nothing
secret inside.
"""

import importlib.util
import re
import runpy
import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from services.embedded import nats_credentials
from services.embedded.binaries import find_nats_server
from services.embedded.certificates import ensure
from services.embedded.nats_credentials import keep, seed_file
from shared.bus import subjects
from shared.bus.jetstream import JetStreamBus
from shared.domain.secret_url import bus_trouble, database_trouble
from shared.eventlog.postgres_logins import KEEPER, SERVICE
from tests.fixtures.ports import free_port

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

OURS = {
    name: service
    for name, service in SERVICES.items()
    if service["image"].startswith("${TOPOLOG_IMAGE")
}

BOTH_VERSIONS_READ = {
    "image",
    "build",
    "pull_policy",
    "command",
    "environment",
    "volumes",
    "ports",
    "depends_on",
    "healthcheck",
    "profiles",
    "init",
    "user",
    "entrypoint",
    "read_only",
    "tmpfs",
    "cap_drop",
    "cap_add",
    "security_opt",
    "stop_grace_period",
    "restart",
    "secrets",
}
ROOTS = {"exporter-real", "kubeconfig", "credentials-real"}
MORE = {"kubeconfig": ["DAC_OVERRIDE", "CHOWN"], "credentials-real": ["DAC_OVERRIDE"]}


def test_only_keys_that_compose_1_and_2_both_read() -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == {
        "services",
        "volumes",
        "secrets",
    }
    for name, service in SERVICES.items():
        assert service.keys() <= BOTH_VERSIONS_READ, name


def test_the_first_service_builds_the_image_and_no_registry_is_asked() -> None:
    """Compose 1 builds images in the order of the file, services without dependencies first."""
    assert [name for name, service in SERVICES.items() if "build" in service] == [
        next(iter(SERVICES))
    ]
    assert "depends_on" not in next(iter(SERVICES.values()))
    assert all(service["pull_policy"] == "never" for service in OURS.values())
    assert len({service["image"] for service in OURS.values()}) == 1


def test_a_plain_up_runs_every_part_and_a_simulated_cluster() -> None:
    plain = {name for name, service in SERVICES.items() if "profiles" not in service}
    assert plain == {
        "postgres",
        "nats",
        "certificates",
        "migrations",
        "credentials",
        "exporter",
        "topology-store",
        "scheduler",
        "binder",
        "simulator",
        "console",
    }
    profiles = {
        name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service
    }
    assert profiles == {
        **{name: ["real"] for name in ROOTS},
        **{name: ["archive"] for name in ("archive", "prune")},
        **{name: ["observability"] for name in ("prometheus", "grafana", "otel-collector")},
    }


def test_every_part_of_ours_runs_a_module_that_exists() -> None:
    for name, service in OURS.items():
        assert service["command"][0] in ("python", "topolog"), name
        if service["command"][1] == "-m":
            module = service["command"][2]
            assert importlib.util.find_spec(module) is not None
            assert (
                module.startswith("services.embedded.run_")
                or importlib.util.find_spec(f"{module}.__main__") is not None
            )


def test_dependencies_name_services_that_run_and_whose_condition_can_come_true() -> None:
    for service in SERVICES.values():
        for name, wait in service.get("depends_on", {}).items():
            assert wait["condition"] in (
                "service_healthy",
                "service_completed_successfully",
                "service_started",
            )
            assert wait["condition"] != "service_healthy" or "healthcheck" in SERVICES[name]
            assert SERVICES[name].get("profiles", service.get("profiles")) == service.get(
                "profiles"
            )


def needed(name: str) -> set[str]:
    """A service and all that it waits for."""
    return {name}.union(
        *(needed(dependency) for dependency in SERVICES[name].get("depends_on", {}))
    )


def test_an_outside_cluster_comes_without_the_simulated_one() -> None:
    ours = {
        *("topology-store", "scheduler", "binder", "migrations"),
        *("postgres", "nats", "certificates"),
    }
    assert needed("exporter-real") == {"exporter-real", "credentials-real", "kubeconfig"} | ours


def test_folders_of_keys_are_their_user_s_before_root_writes_one() -> None:
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "install -d -m 0711 -o topolog -g topolog /etc/topolog/credentials/seeds" in image


def secret(name: str) -> str:
    """Read a file of the checkout, or of another folder."""
    declared = COMPOSE["secrets"][name]["file"]
    assert declared == f"${{TOPOLOG_SECRETS:-./compose/secrets}}/{name}"
    return (ROOT / "compose" / "secrets" / name).read_text(encoding="utf-8").strip()


def test_nothing_needs_to_be_set_and_every_password_can_be() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    body = text.split("x-image:", 1)[1]
    assert ":?" not in body
    assert not re.findall(r"//(\w+):(\S+?)@", body), "passwords stand in files"
    assert not [
        line
        for line in re.findall(r"^\s+\w*PASSWORD\w*: .*$", body, re.MULTILINE)
        if "_PASSWORD_FILE: /run/" not in line
    ]
    assert {file.name for file in (ROOT / "compose" / "secrets").iterdir()} == set(
        COMPOSE["secrets"]
    )
    assert all(secret(name) for name in COMPOSE["secrets"])


def test_a_container_gets_the_secrets_of_its_settings_only() -> None:
    for name, service in SERVICES.items():
        environment = service.get("environment", {})
        variables = {
            value.removeprefix("/run/secrets/")
            for value in environment.values()
            if str(value).startswith("/run/secrets/")
        }
        assert variables == set(service.get("secrets", [])), name
    holders = {
        secret: {name for name, service in SERVICES.items() if secret in service.get("secrets", [])}
        for secret in COMPOSE["secrets"]
    }
    assert holders == {
        "database-url": {"topology-store", "scheduler", "binder", "console"},
        "nats-url": {"topology-store", "scheduler"},
        "owner-url": {"migrations"},
        "postgres-password": {"postgres"},
        "service-password": {"migrations"},
        "keeper-url": {"archive", "prune"},
        "keeper-password": {"migrations"},
        "nats-password": {"nats"},
    }


def test_urls_and_passwords_of_the_checkout_belong_together() -> None:
    assert urlsplit(secret("owner-url")).password == secret("postgres-password")
    assert urlsplit(secret("database-url")).password == secret("service-password")
    assert urlsplit(secret("nats-url")).password == secret("nats-password")
    assert urlsplit(secret("keeper-url")).password == secret("keeper-password")
    assert urlsplit(secret("database-url")).username == SERVICE
    assert urlsplit(secret("keeper-url")).username == KEEPER
    urls = ("owner-url", "database-url", "keeper-url")
    assert not [url for url in urls if database_trouble(secret(url))]
    assert not bus_trouble(secret("nats-url"))


def test_nothing_of_the_checkout_is_made_by_a_mount() -> None:
    sources = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
    }
    assert {source for source in sources if re.fullmatch(r"[\w-]+", source)} == set(
        COMPOSE["volumes"]
    )
    assert all((ROOT / source).exists() for source in sources if source.startswith("."))


def test_published_ports_are_on_loopback() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published)


def test_every_container_of_ours_gives_up_what_it_does_not_need() -> None:
    for name, service in OURS.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["read_only"] is True
        assert service["init"] is True
        assert ("user" in service) == (name in ROOTS)
        assert service.get("cap_add", []) == MORE.get(name, [])


def test_an_image_of_others_has_a_version() -> None:
    for service in SERVICES.values():
        if service not in OURS.values():
            assert re.search(r":v?\d+\.\d+(\.\d+)?(-alpine)?$", service["image"])


def test_health_asks_for_readiness() -> None:
    for name in ("topology-store", "scheduler", "binder", "exporter", "exporter-real"):
        assert "/readyz" in SERVICES[name]["healthcheck"]["test"][-1]


def test_servers_run_official_images_with_the_rights_of_ours() -> None:
    for name in ("postgres", "nats"):
        service = SERVICES[name]
        assert re.match(rf"{name}:\d", service["image"])
        assert not service["user"].startswith("0")
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "topolog" not in str(service["command" if name == "postgres" else "entrypoint"])
        assert service["healthcheck"]["test"][0] == "CMD"


@pytest.fixture
def nats_of_compose(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """compose/nats/start.sh with the bundled nats-server, in folders of the test."""
    port = free_port()
    for name in ("etc", "run", "data", "credentials"):
        (tmp_path / name).mkdir()
    ensure(tmp_path / "data" / "tls", ["nats", "127.0.0.1"])
    (tmp_path / "password").write_text("first\n")
    config = (ROOT / "compose" / "nats" / "nats.conf").read_text(encoding="utf-8")
    config = config.replace("0.0.0.0:4222", f"127.0.0.1:{port}").replace("127.0.0.1:8222", "")
    config = config.replace('http: ""\n', "").replace("/data", str(tmp_path / "data"))
    (tmp_path / "etc" / "nats.conf").write_text(config.replace("../../tmp", "../run"))
    environment = {
        "PATH": f"{Path(find_nats_server()).parent}:/usr/bin:/bin",
        "NATS_CONFIG": str(tmp_path / "etc" / "nats.conf"),
        "NATS_RUN_DIR": str(tmp_path / "run"),
        "NATS_PASSWORD_FILE": str(tmp_path / "password"),
        "NATS_USERS": str(tmp_path / "credentials" / "users.conf"),
    }
    process = subprocess.Popen(["sh", ROOT / "compose" / "nats" / "start.sh"], env=environment)
    yield tmp_path, port
    process.terminate()
    assert process.wait(timeout=20) is not None


async def test_nats_takes_a_new_key_and_a_new_password_without_a_restart(
    nats_of_compose: tuple[Path, int],
) -> None:
    folder, port = nats_of_compose
    query = f"ca={folder}/data/tls/ca.crt"
    services = JetStreamBus(f"tls://topolog:first@127.0.0.1:{port}?{query}", patience_s=20)
    await services.ensure_streams()
    await services.close()
    keep(folder / "credentials", [("n1", ["n1"])])
    (folder / "password").write_text("second\n")
    seed = seed_file(folder / "credentials", "n1")
    exporter = JetStreamBus(
        f"tls://127.0.0.1:{port}?{query}&seed={seed}", keeps_streams=False, patience_s=20
    )
    await exporter.publish(subjects.report("n1"), b"{}", {})
    await exporter.close()
    services = JetStreamBus(f"tls://topolog:second@127.0.0.1:{port}?{query}", patience_s=20)
    await services.ensure_streams()
    await services.close()


def test_prometheus_scrapes_every_service_under_the_name_that_the_dashboard_expects() -> None:
    (jobs,) = yaml.safe_load_all((ROOT / "compose" / "prometheus.yaml").read_text(encoding="utf-8"))
    topolog, _ = jobs["scrape_configs"]
    (discovery,) = topolog["dns_sd_configs"]
    assert (set(discovery["names"]), discovery["type"], discovery["port"]) == (
        {"exporter", "topology-store", "scheduler", "binder"},
        "A",
        8080,
    )
    assert topolog["relabel_configs"] == [
        {"source_labels": ["__meta_dns_name"], "target_label": "app"}
    ]


def test_every_service_that_may_be_scaled_publishes_a_range_of_ports() -> None:
    for name in ("topology-store", "scheduler", "binder"):
        (port,) = SERVICES[name]["ports"]
        first, last = (int(number) for number in port.split(":")[1].split("-"))
        assert last - first == 9


def test_the_head_asks_for_the_port_that_a_container_has_now() -> None:
    """Docker takes the next port of a range at each start, so no port belongs to one service."""
    head = (ROOT / "docker-compose.yml").read_text(encoding="utf-8").split("x-image:", 1)[0]
    (asked,) = re.findall(r"docker compose port (\S+) (\d+)", head)
    assert SERVICES[asked[0]]["ports"][0].endswith(f":{asked[1]}")
    assert not re.findall(r"127\.0\.0\.1:8[1-9]\d\d", head)


def test_the_head_names_services_and_settings_that_there_are() -> None:
    head, body = (ROOT / "docker-compose.yml").read_text(encoding="utf-8").split("x-image:", 1)
    commands = " ".join(head.replace("#", " ").split())
    named = re.findall(
        (
            r"(?:docker compose (?:exec|run --rm|restart|port) |--scale |--profile real up "
            r")([a-z][a-z-]+)"
        ),
        commands,
    )
    assert (
        {"scheduler", "migrations", "exporter-real", "postgres", "topology-store"}
        <= set(named)
        <= set(SERVICES)
    )
    assert all(
        f"${{{name}:-" in body
        for name in re.findall(r"\b(?:TOPOLOG_[A-Z_]+|NODE_NAME|KUBECONFIG_FILE)\b", head)
    )


def test_prometheus_reads_the_collector_of_spans() -> None:
    (jobs,) = yaml.safe_load_all((ROOT / "compose" / "prometheus.yaml").read_text(encoding="utf-8"))
    _, spans = jobs["scrape_configs"]
    (target,) = spans["static_configs"][0]["targets"]
    assert target.split(":")[0] in SERVICES


def test_metrics_and_state_ask_for_a_token_which_prometheus_carries_and_probes_need_none() -> None:
    token = "${TOPOLOG_HTTP_TOKEN:-develop}"
    serving = [
        service["environment"]
        for service in OURS.values()
        if "TOPOLOG_HTTP_HOST" in service.get("environment", {})
    ]
    assert [environment["TOPOLOG_HTTP_TOKEN"] for environment in serving] == [token] * 6
    (jobs,) = yaml.safe_load_all((ROOT / "compose" / "prometheus.yaml").read_text(encoding="utf-8"))
    file = jobs["scrape_configs"][0]["authorization"]["credentials_file"]
    assert f"> {file}" in SERVICES["prometheus"]["entrypoint"][-1]
    assert SERVICES["prometheus"]["environment"]["TOPOLOG_HTTP_TOKEN"] == token


def test_nats_serves_tls_under_the_name_in_its_url_and_shares_only_its_authority() -> None:
    maker = SERVICES["certificates"]
    shared_folder = maker["environment"]["TOPOLOG_NATS_CA_DIR"]
    assert f"nats-ca:{shared_folder}" in maker["volumes"]
    folder = maker["environment"]["TOPOLOG_NATS_TLS_DIR"]
    assert folder == "/var/lib/topolog/tls"
    assert "nats:/var/lib/topolog" in maker["volumes"]
    assert "nats:/data" in SERVICES["nats"]["volumes"]
    config = (ROOT / "compose" / "nats" / "nats.conf").read_text(encoding="utf-8")
    assert 'cert_file: "/data/tls/tls.crt"' in config
    variables = {"TOPOLOG_NATS_URL", "TOPOLOG_NATS_URL_FILE"}
    clients = [
        service for service in OURS.values() if variables & {*service.get("environment", {})}
    ]
    assert len(clients) == 4
    for client in clients:
        url = client["environment"].get("TOPOLOG_NATS_URL") or secret("nats-url")
        assert url.startswith("tls://")
        assert (
            urlsplit(url).netloc.rpartition("@")[2]
            == f"{maker['environment']['TOPOLOG_NATS_TLS_NAMES']}:4222"
        )
        assert parse_qs(urlsplit(url).query)["ca"] == [f"{shared_folder}/ca.crt"]
        assert f"nats-ca:{shared_folder}:ro" in client["volumes"]


def test_each_exporter_speaks_by_a_key_that_was_made_for_its_nodes_and_that_it_can_read() -> None:
    folder, _, users = SERVICES["nats"]["environment"]["NATS_USERS"].rpartition("/")
    assert users == nats_credentials.USERS
    assert f"nats-credentials:{folder}:ro" in SERVICES["nats"]["volumes"]
    for exporter, maker in (("exporter", "credentials"), ("exporter-real", "credentials-real")):
        made, used = SERVICES[maker], SERVICES[exporter]
        assert made["environment"]["TOPOLOG_NATS_CREDENTIALS_DIR"] == folder
        seed = f"{folder}/seeds/{made['environment']['TOPOLOG_NATS_CREDENTIAL']}.nk"
        assert parse_qs(urlsplit(used["environment"]["TOPOLOG_NATS_URL"]).query)["seed"] == [seed]
        assert "@" not in used["environment"]["TOPOLOG_NATS_URL"]
        assert made.get("user") == used.get("user"), "a seed is its owner's alone"
        assert used["depends_on"][maker] == {"condition": "service_completed_successfully"}
        assert f"nats-credentials:{folder}:ro" in used["volumes"]
    nodes_file = SERVICES["credentials"]["environment"]["TOPOLOG_NODES_FILE"]
    assert f"--nodes-file={nodes_file}" in SERVICES["exporter"]["command"]
    assert (
        SERVICES["credentials-real"]["environment"]["NODE_NAME"]
        == SERVICES["exporter-real"]["environment"]["NODE_NAME"]
    )


def test_the_collector_reads_what_the_services_write_and_its_pipelines_hang_together() -> None:
    config = yaml.safe_load((ROOT / "compose" / "otel-collector.yaml").read_text(encoding="utf-8"))
    parts = set(config["receivers"]) | set(config["connectors"]) | set(config["exporters"])
    pipelines = config["service"]["pipelines"].values()
    assert {
        name for pipeline in pipelines for name in (*pipeline["receivers"], *pipeline["exporters"])
    } == parts
    (pattern,) = config["receivers"]["filelog"]["include"]
    written = [
        service["environment"]["TOPOLOG_TRACE_FILE"]
        for service in OURS.values()
        if "TOPOLOG_TRACE_FILE" in str(service)
    ]
    assert len(set(written)) == len(written) == 3
    assert all(fnmatch(path, pattern) for path in written)


def test_grafana_shows_the_dashboards_that_the_tests_know() -> None:
    volumes = SERVICES["grafana"]["volumes"]
    (provider,) = yaml.safe_load(
        (ROOT / "compose" / "grafana-dashboards.yaml").read_text(encoding="utf-8")
    )["providers"]
    (target,) = [
        volume.split(":")[1]
        for volume in volumes
        if volume.startswith("./k8s/components/monitoring/dashboards:")
    ]
    assert target.startswith(provider["options"]["path"])


def test_the_image_builds_from_one_base_and_runs_as_an_ordinary_user() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert set(bases) == {"${BASE}"}
    (base,) = [line for line in lines if line.startswith("ARG BASE=")]
    assert re.fullmatch(r"ARG BASE=python:3\.11-slim-bookworm(@sha256:[0-9a-f]{64})?", base)
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"]
    for line in (line for line in lines if line.startswith("COPY") and "--from" not in line):
        for source in line.split()[1:-1]:
            assert (ROOT / source).exists(), source


def test_a_digest_of_the_base_image_is_set_and_replaced_by_a_newer_one(tmp_path: Path) -> None:
    for name in ("Dockerfile", "Makefile"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    tool, file = tmp_path / "registry", tmp_path / "Dockerfile"
    image = file.read_text(encoding="utf-8")
    tag = "python:3.11-slim-bookworm"
    for digest in ("sha256:" + "a" * 64, "sha256:" + "b" * 64, ""):
        tool.write_text(f'#!/bin/sh\ntest "$4" = {tag} && echo "{digest}"\n')
        tool.chmod(0o755)
        made = ["make", "--silent", "digests", f"CONTAINER_TOOL={tool}"]
        ended = subprocess.run(made, cwd=tmp_path, capture_output=True, check=False)
        assert (ended.returncode == 0) == bool(digest)
        if digest:
            image = re.sub("(?m)^ARG BASE=.*", f"ARG BASE={tag}@{digest}", image)
        assert file.read_text(encoding="utf-8") == image


def test_the_image_has_the_services_commands_and_code_asks_for_no_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    on_the_users_machine = {"kubectl-topolog", "kubectl_complete-topolog"}
    in_the_image = set(project["scripts"]) - on_the_users_machine
    assert in_the_image == {"topolog", "topolog-exporter"}
    assert all(f"> /opt/topolog/bin/{name} " in image for name in in_the_image)
    links = (ROOT / "scripts" / "link_project.sh").read_text(encoding="utf-8")
    for name, target in project["scripts"].items():
        assert f"command {name} {target.replace(':', ' ')}\n" in links
    code = [path for room in ("services", "shared") for path in (ROOT / room).rglob("*.py")]
    assert not [path for path in code if "importlib.metadata" in path.read_text(encoding="utf-8")]


def test_a_linked_command_runs_only_as_a_command(tmp_path: Path) -> None:
    """`topolog replay whatif` starts processes, which import the file of their parent's command."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\necho {tmp_path}\n", encoding="utf-8")
    python.chmod(0o755)
    subprocess.run(["sh", str(ROOT / "scripts" / "link_project.sh"), str(tmp_path)], check=True)
    commands = [path for path in python.parent.iterdir() if path != python]
    assert len(commands) == 4
    for command in commands:
        runpy.run_path(str(command), run_name="__mp_main__")


def test_a_container_leaves_no_nameless_volume_behind() -> None:
    """A volume of the image is created again for each container that mounts nothing
    there, and stays after `down`.
    """
    assert "VOLUME" not in {
        line.split(" ")[0]
        for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    }


def test_the_image_brings_no_installer_of_packages() -> None:
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    build, _, final = image.rpartition("\nFROM ")
    assert "pip uninstall --yes --quiet setuptools pip" in build
    assert "pip install" not in final


@pytest.fixture(scope="module")
def runtime_lock() -> Any:
    spec = importlib.util.spec_from_file_location(
        "runtime_lock", ROOT / "scripts" / "runtime_lock.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_image_gets_what_the_services_need_and_no_development_tools(runtime_lock: Any) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    kept = {
        name
        for name, _text, _by in runtime_lock.entries(
            runtime_lock.runtime(lock, project["dependencies"])
        )
    }
    assert {runtime_lock.normal(name) for name in project["dependencies"]} <= kept
    assert {"greenlet", "h11", "click"} <= kept
    assert not kept & {"mypy", "ruff", "pytest", "matplotlib", "hypothesis", "grpcio-tools"}


def test_a_reduced_lock_holds_all_transitive_requirements(runtime_lock: Any) -> None:
    lock = (
        "a==1 \\\n    --hash=sha256:0\n    # via project (pyproject.toml)\n"
        "b==1 \\\n    --hash=sha256:1\n    # via\n    #   a\n    #   z\n"
        "C_c==1 \\\n    --hash=sha256:2\n    # via b\n"
        "z==1 \\\n    --hash=sha256:3\n    # via project (pyproject.toml)\n"
    )
    assert [
        name
        for name, _text, _by in runtime_lock.entries(runtime_lock.runtime(lock, ["a[extra]>=1"]))
    ] == ["a", "b", "c-c"]


def test_unmounts_of_the_machine_reach_its_exporter() -> None:
    """Otherwise volumes of ended pods stay mounted in the container and cannot be detached."""
    assert (
        "${KUBELET_DIR:-/var/lib/kubelet}:/kubelet/state:ro,rslave"
        in SERVICES["exporter-real"]["volumes"]
    )
