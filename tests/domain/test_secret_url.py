"""URLs with passwords: what would be read otherwise than it was meant is refused, and no word holds
anything of a password.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest
from asyncpg import connect_utils
from hypothesis import example, given
from hypothesis import strategies as st

from shared.bus.jetstream_client import split_credentials
from shared.bus.port import BusUnavailable
from shared.domain.secret_url import (
    NATS,
    POSTGRES,
    bus_trouble,
    database_trouble,
    looks_like_url,
    masked,
    shown,
)
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.postgres_connection import masked_url, plain_url
from shared.runtime.settings import CommonSettings, SettingsInvalid, load
from shared.telemetry.scrubbing import scrub_text

MARK = "sEcReT"
HOSTILE = st.text(st.sampled_from("#/?@:,;&=%[]\\ \t\n'\"`$!*()<>|^~é℀٤0aZ"), max_size=8)
PASSWORDS = st.builds(lambda before, after: f"{before}{MARK}{after}", HOSTILE, HOSTILE)


def dsn(url: str) -> tuple[object, ...]:
    """Return addresses and password as asyncpg reads them."""
    addresses, parameters, *_ = connect_utils._parse_connect_arguments(
        dsn=url,
        host=None,
        port=None,
        user=None,
        password=None,
        passfile="/nonexistent",
        database=None,
        command_timeout=None,
        statement_cache_size=100,
        max_cached_statement_lifetime=300,
        max_cacheable_statement_size=1024,
        ssl=None,
        direct_tls=None,
        server_settings=None,
        target_session_attrs=None,
        krbsrvname=None,
        gsslib=None,
        service=None,
        servicefile=None,
    )
    return addresses, parameters.password


@given(PASSWORDS)
@example(f"{MARK}#")
@example(f"{MARK}99#x@y")
@example(f"12/{MARK}")
@example(f"1?a=b&{MARK}")
def test_a_database_url_is_read_with_its_password_or_rejected_without_showing_it(
    password: str,
) -> None:
    for url in (
        f"postgresql://u:{password}@127.0.0.1:5432/x",
        f"postgresql+asyncpg://u:{password}@127.0.0.1/x",
    ):
        trouble = database_trouble(url)
        assert MARK not in trouble
        if not trouble and "%" not in password:
            assert dsn(plain_url(url)) == ([("127.0.0.1", 5432)], password)
        assert MARK not in masked_url(url)
        assert MARK not in shown(url, POSTGRES)


@given(PASSWORDS)
def test_a_password_that_is_encoded_is_never_refused(password: str) -> None:
    url = f"postgresql://u:{quote(password, safe='')}@127.0.0.1/x"
    assert database_trouble(url) == ""
    assert dsn(plain_url(url)) == ([("127.0.0.1", 5432)], password)
    bus = f"nats://u:{quote(password, safe='')}@127.0.0.1:4222"
    assert split_credentials(bus) == (
        ["nats://127.0.0.1:4222"],
        {"user": "u", "password": password},
    )


@given(PASSWORDS)
@example(f"{MARK}#")
@example(f"1,{MARK}")
def test_a_bus_url_is_read_with_the_password_that_was_meant_or_refused_without_a_word_of_it(
    password: str,
) -> None:
    url = f"nats://u:{password}@127.0.0.1:4222"
    if bus_trouble(url):
        with pytest.raises(BusUnavailable) as refused:
            split_credentials(url)
        assert MARK not in str(refused.value)
    else:
        servers, credentials = split_credentials(url)
        assert MARK not in str(servers)
        assert "%" in password or credentials["password"] == password
    assert MARK not in shown(url, NATS)


@given(
    PASSWORDS,
    st.sampled_from(["postgresql://", "postgresql:/", "nats://", "tls:/", "postgresql+asyncpg://"]),
)
def test_a_text_is_masked_up_to_the_last_at_of_its_line(password: str, scheme: str) -> None:
    line = " ".join(password.splitlines())
    text = f"no server answers at {scheme}u:{line}@127.0.0.1/x: refused"
    for hidden in (masked(text), scrub_text(text), scrub_text(f"tried '{scheme}{line}@h'")):
        assert MARK not in hidden
    assert masked(text).endswith("***@127.0.0.1/x: refused")


@given(PASSWORDS)
def test_settings_refuse_without_a_word_of_the_password(password: str) -> None:
    environment = {
        "TOPOLOG_DATABASE_URL": f"postgresql://u:{password}@127.0.0.1/x",
        "TOPOLOG_NATS_URL": f"nats://u:{password}@127.0.0.1",
    }
    wrong = {"TOPOLOG_DATABASE_URL": database_trouble, "TOPOLOG_NATS_URL": bus_trouble}
    if named := {variable for variable, trouble in wrong.items() if trouble(environment[variable])}:
        with pytest.raises(SettingsInvalid) as invalid:
            load(CommonSettings, environment)
        assert MARK not in str(invalid.value)
        assert {problem.partition(":")[0] for problem in invalid.value.problems} == named
    with pytest.raises(LogUnavailable) as refused:
        plain_url(f"postgresql:/u:{password}@h/x")
    assert MARK not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:p#@h/x", "write %23"),
        ("postgresql://u:p/w@h/x", "write %2F"),
        ("postgresql://u:p?w@h/x", "write %3F"),
        ("postgresql://u:p@w@h/x", "write %40"),
        ("postgresql://u:p[w@h/x", "write %5B"),
        ("postgresql://u:p w@h/x", "%20"),
        ("postgresql://u:secret", "USER:PASSWORD@HOST"),
        ("postgresql://h:70000/x", "not a number up to 65535"),
        ("postgresql://::1/x", "in brackets"),
        ("postgresql://[::1]x/x", "[ADDRESS]:PORT"),
        ("postgresql://h/x?sslmode", "NAME=VALUE"),
        ("postgresql:/h/x", "must begin with postgresql://"),
        ("mysql://h/x", "must begin with postgresql://"),
        ("postgresql://u:p\u2100@h/x", "percent-encode"),
    ],
)
def test_each_mistake_names_its_remedy(url: str, says: str) -> None:
    assert says in database_trouble(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/x",
        "postgres://u@h:5432/x?sslmode=require",
        "postgresql://u:p%23@a:1,b:2/x",
        "postgresql://[::1]:5432/x",
        "postgresql+asyncpg://postgres@/topolog?host=%2Ftmp%2Frun&port=5432",
        "postgresql:///x",
        "postgresql://u:p%40@h",
    ],
)
def test_what_libpq_takes_is_not_refused(url: str) -> None:
    assert database_trouble(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        "nats://h:1",
        "h:1",
        "h",
        "nats://t@h",
        "nats://u:p@h:1, nats://g:2",
        "a:1,b:2",
        "tls://h?ca=/etc/ca.crt&seed=/s",
        "[::1]:4222",
    ],
)
def test_what_nats_takes_is_not_refused(url: str) -> None:
    assert bus_trouble(url) == ""


@pytest.mark.parametrize(
    "url",
    ["nats://", "http://h:1", "nats:/u:p@h", "nats://u:1,2@h", "nats://u:p#@h:1", "", "nats://h:x"],
)
def test_what_nats_cannot_take_is_refused(url: str) -> None:
    assert bus_trouble(url)


def test_what_is_no_password_stays() -> None:
    for text in (
        "GET http://h:1/x failed",
        "pods/a: b@c",
        "nats://h:1 did not take x",
        "topolog_service",
        "a/b@sha256:0",
    ):
        assert masked(text) == text
    assert masked("x?sslpassword=hunter2&a=b") == "x?sslpassword=***&a=b"
    assert shown("postgresql://u:p@h:1/x?password=hunter2", POSTGRES) == "postgresql://h:1/x"


def test_a_path_is_no_url() -> None:
    assert not any(map(looks_like_url, ("history.jsonl", "/tmp/a/b.jsonl", "~/x", "C-x")))
    assert all(map(looks_like_url, ("postgresql:/u:p@h/x", "u:p@h/x", "file:/x")))


def test_the_example_of_a_hint_stays_readable() -> None:
    example = "postgresql://USER:PASSWORD@HOST/DATABASE"
    assert masked(f"give {example}, or a file") == f"give {example}, or a file"
    for prefix in ("postgresql://me:s3cret", "x"):
        assert "s3cret" not in masked(f"{prefix}{example}")
    assert "s3cret" not in masked(f"tried postgresql://me:s3cret@h/d, give {example}")
