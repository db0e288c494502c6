"""docker-compose.yml and Dockerfile: the subset of both Compose versions, sound references, nothing secret inside."""

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

BOTH_VERSIONS_READ = {
    "image", "build", "command", "environment", "volumes", "ports", "depends_on", "healthcheck", "profiles", "init", "user",
    "read_only", "tmpfs", "cap_drop", "security_opt", "stop_grace_period", "restart",
}  # fmt: skip


def test_only_keys_that_compose_1_and_2_both_read() -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"services", "volumes"}
    for name, service in SERVICES.items():
        assert service.keys() <= BOTH_VERSIONS_READ, name


def test_every_part_is_there_and_runs_a_module_that_exists() -> None:
    assert set(SERVICES) == {"postgres", "nats", "migrations", "exporter", "topology-store", "scheduler", "binder"}
    for name, service in SERVICES.items():
        assert service["command"][:2] == ["python", "-m"], name
        module = service["command"][2]
        assert importlib.util.find_spec(module) is not None
        assert module.startswith("services.embedded.run_") or importlib.util.find_spec(f"{module}.__main__") is not None


def test_dependencies_name_services_whose_condition_can_come_true() -> None:
    for service in SERVICES.values():
        for name, wait in service.get("depends_on", {}).items():
            assert wait["condition"] in ("service_healthy", "service_completed_successfully")
            assert wait["condition"] != "service_healthy" or "healthcheck" in SERVICES[name]


def test_no_password_is_written_down_and_volumes_are_declared() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    for value in re.findall(r"^\s+\w*PASSWORD\w*: (.*)$", text, re.MULTILINE):
        assert value.startswith("${")
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert {name for name in used if re.fullmatch(r"[\w-]+", name)} == set(COMPOSE["volumes"])


def test_published_ports_are_on_loopback() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published)


def test_every_container_gives_up_what_it_does_not_need() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["read_only"] is True
        assert service["init"] is True
        assert ("user" in service) == (name == "exporter")


def test_the_image_builds_from_the_one_base_and_runs_as_nobody_special() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert set(bases) == {"python:3.11-slim-bookworm"}
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"]
    for line in (line for line in lines if line.startswith("COPY") and "--from" not in line):
        for source in line.split()[1:-1]:
            assert (ROOT / source).exists(), source


@pytest.fixture(scope="module")
def runtime_lock() -> Any:
    spec = importlib.util.spec_from_file_location("runtime_lock", ROOT / "scripts" / "runtime_lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_image_gets_what_the_services_need_and_no_development_tools(runtime_lock: Any) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    kept = {name for name, _text, _by in runtime_lock.entries(runtime_lock.runtime(lock, project["dependencies"]))}
    assert {runtime_lock.normal(name) for name in project["dependencies"]} <= kept
    assert {"greenlet", "h11", "click"} <= kept
    assert not kept & {"mypy", "ruff", "pytest", "matplotlib", "hypothesis", "grpcio-tools"}


def test_a_reduced_lock_follows_what_is_needed_transitively(runtime_lock: Any) -> None:
    lock = (
        "a==1 \\\n    --hash=sha256:0\n    # via project (pyproject.toml)\n"
        "b==1 \\\n    --hash=sha256:1\n    # via\n    #   a\n    #   z\n"
        "C_c==1 \\\n    --hash=sha256:2\n    # via b\n"
        "z==1 \\\n    --hash=sha256:3\n    # via project (pyproject.toml)\n"
    )
    assert [name for name, _text, _by in runtime_lock.entries(runtime_lock.runtime(lock, ["a[extra]>=1"]))] == ["a", "b", "c-c"]
