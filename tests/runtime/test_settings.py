"""Settings: from file and environment, every error at once, secrets never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from shared.domain.secret_url import text_of
from shared.runtime.secret_file import SecretUnreadable
from shared.runtime.settings import (
    CommonSettings,
    Secret,
    SettingsInvalid,
    load,
    masked,
    names,
    variables,
)


class Cycle(msgspec.Struct, frozen=True):
    batch: Annotated[int, msgspec.Meta(ge=1)] = 10
    token: Secret = ""


class Sample(CommonSettings, frozen=True, kw_only=True):
    node: str
    policy: Literal["refuse", "pass"] = "refuse"
    nodes: tuple[str, ...] = ()
    weights: dict[str, int] = {}
    dry_run: bool = False
    cycle: Cycle = Cycle()


def problems_of(environment: dict[str, str], file: Path | None = None) -> list[str]:
    with pytest.raises(SettingsInvalid) as invalid:
        load(Sample, environment, file)
    return invalid.value.problems


def test_environment_wins_over_file_and_file_over_default(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("node: from-file\npolicy: pass\ncycle: {batch: 3}\n")
    settings = load(Sample, {"TOPOLOG_NODE": "from-env", "TOPOLOG_CONFIG": str(file)})
    assert (settings.node, settings.policy, settings.cycle.batch, settings.http_port) == (
        "from-env",
        "pass",
        3,
        0,
    )


def test_a_toml_file_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('node = "n"\n[cycle]\nbatch = 7\n')
    assert load(Sample, {}, file).cycle.batch == 7


def test_numbers_flags_lists_and_mappings_are_read_from_the_environment() -> None:
    environment = {
        "TOPOLOG_NODE": "n",
        "TOPOLOG_DRY_RUN": "true",
        "TOPOLOG_CYCLE_BATCH": "4",
        "TOPOLOG_NODES": "a, b",
        "TOPOLOG_WEIGHTS": "{cpu: 2}",
        "TOPOLOG_TRACE_RATIO": "0.5",
    }
    settings = load(Sample, environment)
    assert (settings.dry_run, settings.cycle.batch, settings.nodes, settings.weights) == (
        True,
        4,
        ("a", "b"),
        {"cpu": 2},
    )
    assert settings.trace_ratio == 0.5


def test_every_error_is_reported_at_once_with_its_variable() -> None:
    problems = problems_of(
        {
            "TOPOLOG_HTTP_PORT": "70000",
            "TOPOLOG_POLICY": "maybe",
            "TOPOLOG_CYCLE_BATCH": "0",
            "TOPOLOG_DRY_RUN": "perhaps",
        }
    )
    named = [problem.partition(":")[0] for problem in problems]
    assert sorted(named) == [
        "TOPOLOG_CYCLE_BATCH",
        "TOPOLOG_DRY_RUN",
        "TOPOLOG_HTTP_PORT",
        "TOPOLOG_NODE",
        "TOPOLOG_POLICY",
    ]


def test_an_unknown_key_of_a_file_is_an_error_that_names_the_near_one(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("node: n\npolcy: pass\ncycle: {bach: 1}\n")
    assert [problem.split(": ", 1)[1] for problem in problems_of({}, file)] == [
        "polcy is not a setting; did you mean policy?",
        "cycle.bach is not a setting; did you mean cycle.batch?",
    ]


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "\x00", "- x"])
def test_a_file_that_is_no_mapping_is_an_error_and_not_a_crash(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    assert any(str(file) in problem for problem in problems_of({"TOPOLOG_NODE": "n"}, file))


def test_a_file_that_is_not_there_is_an_error() -> None:
    assert any(
        "absent.yaml" in problem
        for problem in problems_of({"TOPOLOG_NODE": "n", "TOPOLOG_CONFIG": "absent.yaml"})
    )


def test_variables_that_kubernetes_adds_are_ignored() -> None:
    assert (
        load(Sample, {"TOPOLOG_NODE": "n", "TOPOLOG_SCHEDULER_PORT": "tcp://10.0.0.1:80"}).node
        == "n"
    )


def test_a_secret_may_be_named_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://h/db\n")
    settings = load(
        Sample, {"TOPOLOG_NODE": "n", "TOPOLOG_DATABASE_URL_FILE": str(tmp_path / "url")}
    )
    assert settings.database_url == "postgresql://h/db"
    assert (
        "TOPOLOG_DATABASE_URL_FILE"
        in problems_of({"TOPOLOG_NODE": "n", "TOPOLOG_DATABASE_URL_FILE": "absent"})[0]
    )


def test_a_url_in_a_file_is_read_again_whenever_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://u:first@h/db\n")
    named = load(
        Sample, {"TOPOLOG_NODE": "n", "TOPOLOG_DATABASE_URL_FILE": str(tmp_path / "url")}
    ).database()
    assert text_of(named) == "postgresql://u:first@h/db"
    (tmp_path / "url").write_text("postgresql://u:second@h/db\n")
    assert text_of(named) == "postgresql://u:second@h/db"
    (tmp_path / "url").write_text("postgresql://u:hunter2#@h/db\n")
    with pytest.raises(SecretUnreadable, match="%23") as received:
        text_of(named)
    assert "hunter2" not in str(received.value)
    (problem,) = problems_of(
        {"TOPOLOG_NODE": "n", "TOPOLOG_DATABASE_URL_FILE": str(tmp_path / "url")}
    )
    assert problem.startswith("TOPOLOG_DATABASE_URL_FILE: contains a misplaced '#'")
    assert "hunter2" not in problem


def test_a_url_itself_counts_before_its_file_and_the_settings_file_may_name_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "bus").write_text("nats://u:p@h:1")
    (tmp_path / "s.yaml").write_text(f"node: n\nnats_url_file: {tmp_path / 'bus'}\n")
    by_file = load(Sample, {}, tmp_path / "s.yaml")
    assert (by_file.nats_url, text_of(by_file.bus())) == ("nats://u:p@h:1", "nats://u:p@h:1")
    itself = load(Sample, {"TOPOLOG_NATS_URL": "nats://g:2"}, tmp_path / "s.yaml")
    assert itself.bus() == "nats://g:2"
    both = {
        "TOPOLOG_NODE": "n",
        "TOPOLOG_NATS_URL": "nats://g:2",
        "TOPOLOG_NATS_URL_FILE": str(tmp_path / "bus"),
    }
    assert load(Sample, both).bus() == "nats://g:2"
    assert text_of(load(Sample, both | {"TOPOLOG_NATS_URL": ""}).bus()) == "nats://u:p@h:1"


@pytest.mark.parametrize("content", [b"", b"  \n", b"\xff\xfe"])
def test_a_file_of_a_secret_that_holds_none_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    (problem,) = problems_of(
        {"TOPOLOG_NODE": "n", "TOPOLOG_HTTP_TOKEN_FILE": str(tmp_path / "token")}
    )
    assert problem.startswith("TOPOLOG_HTTP_TOKEN_FILE: ")
    assert str(tmp_path / "token") in problem


def test_secrets_are_masked_wherever_settings_are_shown() -> None:
    environment = {
        "TOPOLOG_NODE": "n",
        "TOPOLOG_DATABASE_URL": "postgresql://me:hunter2@h/db",
        "TOPOLOG_CYCLE_TOKEN": "hunter2",
    }
    shown = masked(load(Sample, environment))
    assert "hunter2" not in str(shown)
    assert shown["node"] == "n"


def test_a_wrong_secret_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("node: n\ncycle: {token: [hunter2]}\n")
    assert "hunter2" not in str(problems_of({}, file))


def test_every_setting_has_a_variable() -> None:
    assert ("TOPOLOG_CYCLE_BATCH", "int") in variables(Sample)
    assert {
        "TOPOLOG_CYCLE_BATCH",
        "TOPOLOG_CYCLE_TOKEN_FILE",
        "TOPOLOG_NATS_URL_FILE",
        "TOPOLOG_CONFIG",
    } <= names(Sample)
    assert "TOPOLOG_NODE_FILE" not in names(Sample)
