"""The environment of a child: the variables of the system and its own, and no other secret."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from services.cli.child_settings import declared
from services.embedded.child import ChildSpec, FileReady, PlainIdentity
from services.embedded.data_dir import DataDir
from services.embedded.environment import FOREIGN, NETWORK, PYTHON, inherited
from services.embedded.process import ChildProcess
from services.embedded.spawn import run_tool
from services.embedded.up import children
from services.embedded.up.options import UpOptions

SECRETS = {
    "TOPOLOG_DATABASE_URL": "s3cret",
    "TOPOLOG_HTTP_TOKEN": "s3cret",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "PGPASSWORD": "s3cret",
}
ADDRESSES = {
    "TOPOLOG_DATABASE_URL": "db",
    "TOPOLOG_NATS_URL": "bus",
    "TOPOLOG_TRACE_FILE": "t",
    "TOPOLOG_TRACE_RATIO": "0",
}
WRITE = (
    "import os, pathlib, sys, time; p = pathlib.Path(sys.argv[1]); "
    "p.write_text(repr(dict(os.environ))); time.sleep(60)"
)


def specs(tmp_path: Path, **options: str) -> dict[str, ChildSpec]:
    printed = UpOptions(data_dir=tmp_path / "data", declared=declared(), **options)  # type: ignore[arg-type]
    with DataDir(printed.data_dir) as folder:
        ports = children.Ports(
            dict.fromkeys(("simulator", *children.exporter_names(printed)), 1)
            | {name: 1 for name, _, *_ in children.service_names(printed)}
        )
        exporters = dict.fromkeys(children.exporter_names(printed), "bus")
        result = [
            children.simulator(printed, folder, ports),
            *children.services(printed, folder, ports, ADDRESSES),
        ]
        result += children.exporters(printed, folder, ports, ADDRESSES, exporters)
    return {spec.name: spec for spec in result}


def test_what_the_system_needs_comes_along_and_nothing_else_unasked() -> None:
    environment = {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C",
        "TZ": "UTC",
        "LD_LIBRARY_PATH": "/l",
        **SECRETS,
    }
    assert inherited(environment, ()) == {
        name: value for name, value in environment.items() if name not in SECRETS
    }


def test_a_pattern_matches_any_ending_and_a_foreign_program_gets_no_topolog_variable() -> None:
    environment = {
        "PYTHONPATH": "/p",
        "COVERAGE_PROCESS_START": "c",
        "HTTPS_PROXY": "x",
        "no_proxy": "y",
        **SECRETS,
    }
    assert set(inherited(environment, PYTHON)) == {"PYTHONPATH", "COVERAGE_PROCESS_START"}
    assert set(inherited(environment, NETWORK)) == {"HTTPS_PROXY", "no_proxy"}
    assert set(environment) - set(inherited(environment, (FOREIGN,))) == {
        "TOPOLOG_DATABASE_URL",
        "TOPOLOG_HTTP_TOKEN",
    }


async def test_a_child_and_a_tool_are_started_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (SECRETS | {"KEPT": "kept"}).items():
        monkeypatch.setenv(name, value)
    seen = tmp_path / "seen"
    argv = (sys.executable, "-c", WRITE, str(seen))
    child = ChildProcess(
        ChildSpec(
            name="a", argv=argv, ready=FileReady(seen), log_path=tmp_path / "log", passes=("KEPT",)
        )
    )
    await child.start()
    while not seen.read_text():
        pass
    await child.stop()
    assert "kept" in seen.read_text()
    assert "s3cret" not in seen.read_text()
    assert "s3cret" not in run_tool(
        (sys.executable, "-c", "import os; print(dict(os.environ))"), PlainIdentity()
    )


@pytest.mark.parametrize(
    "variable",
    ["TOPOLOG_LEASE_TTL_S", "TOPOLOG_LOG_LEVEL", "TOPOLOG_CONFIG", "TOPOLOG_HTTP_TOKEN_FILE"],
)
def test_a_service_gets_the_settings_that_it_knows(tmp_path: Path, variable: str) -> None:
    given = {variable: "x", "TOPOLOG_STRANGER": "y", **SECRETS}
    assert inherited(given, specs(tmp_path)["scheduler"].passes) == {
        variable: "x",
        "TOPOLOG_HTTP_TOKEN": "s3cret",
    }
    assert not inherited(given, specs(tmp_path)["simulator"].passes)


def test_server_addresses_reach_only_the_services_that_need_them(tmp_path: Path) -> None:
    result = specs(tmp_path)
    knows = {
        what: {name for name, spec in result.items() if what in (*spec.env, *spec.passes)}
        for what in ADDRESSES
    }
    assert knows["TOPOLOG_DATABASE_URL"] == {"topology-store", "scheduler", "binder"}
    assert knows["TOPOLOG_NATS_URL"] == {"topology-store", "scheduler", "exporter-0", "exporter-1"}


def test_services_get_the_file_of_an_address_and_not_its_contents(
    tmp_path: Path,
) -> None:
    options = UpOptions(data_dir=tmp_path, database_url_file="/s/db", nats_url_file="/s/bus")
    printed = children.environment(
        options, "postgresql://u:s3cret@h/x", "nats://u:s3cret@h", "", tmp_path
    )
    assert (printed["TOPOLOG_DATABASE_URL_FILE"], printed["TOPOLOG_NATS_URL_FILE"]) == (
        "/s/db",
        "/s/bus",
    )
    assert "s3cret" not in str(printed)


def test_a_cache_that_no_option_names_is_left_to_the_schedulers_own_settings(
    tmp_path: Path,
) -> None:
    """TOPOLOG_CACHE of the environment, or `cache` in the file of TOPOLOG_CONFIG."""
    unsaid = children.environment(UpOptions(data_dir=tmp_path), "db", "bus", "", tmp_path)
    assert "TOPOLOG_CACHE" not in unsaid
    assert inherited({"TOPOLOG_CACHE": "overreserve"}, specs(tmp_path)["scheduler"].passes) == {
        "TOPOLOG_CACHE": "overreserve"
    }
    said = children.environment(
        UpOptions(data_dir=tmp_path, cache="passthrough"), "db", "bus", "", tmp_path
    )
    assert said["TOPOLOG_CACHE"] == "passthrough"


def test_a_silence_that_the_environment_names_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = UpOptions(data_dir=tmp_path)
    assert (
        children.environment(simulated, "db", "bus", "", tmp_path)["TOPOLOG_REPORT_MAX_AGE_S"]
        == "15.0"
    )
    monkeypatch.setenv("TOPOLOG_REPORT_MAX_AGE_S", "60")
    assert "TOPOLOG_REPORT_MAX_AGE_S" not in children.environment(
        simulated, "db", "bus", "", tmp_path
    )
    assert "TOPOLOG_REPORT_MAX_AGE_S" in specs(tmp_path)["topology-store"].passes


def test_libpqs_variables_are_for_an_outside_database_alone(tmp_path: Path) -> None:
    assert not inherited(SECRETS, specs(tmp_path)["binder"].passes).get("PGPASSWORD")
    outside = specs(tmp_path, database_url="postgresql://h/x")
    assert {
        name for name, spec in outside.items() if "PGPASSWORD" in inherited(SECRETS, spec.passes)
    } == {
        "topology-store",
        "scheduler",
        "binder",
    }


def test_a_kubeconfigs_command_finds_its_variables_and_none_of_topologs(tmp_path: Path) -> None:
    command = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}}
    for name, user, reached in (("command", command, True), ("token", {"token": "t"}, False)):
        file = tmp_path / name
        cluster = {"name": "k", "cluster": {"server": "http://127.0.0.1:9"}}
        context = {"name": "c", "context": {"cluster": "k", "user": "u"}}
        users = [{"name": "u", "user": user}]
        file.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "contexts": [context],
                    "clusters": [cluster],
                    "users": users,
                }
            )
        )
        variables = inherited(
            SECRETS | {"TOPOLOG_STRANGER": "x"},
            specs(tmp_path, kubeconfig=str(file))["binder"].passes,
        )
        assert ("AWS_SECRET_ACCESS_KEY" in variables) is reached
        assert not {"TOPOLOG_DATABASE_URL", "TOPOLOG_STRANGER"} & set(variables)
