"""Foreign YAML: deep nesting is refused by name, long text is read in time."""

from __future__ import annotations

import pytest

from shared.domain import yaml_text


@pytest.mark.parametrize(
    "text",
    [b"[" * 3_000_000, b"- " * 200_000, b"{a: " * 200_000, b"a:\n [[" + b"[" * 1500, b"[" * 101],
)
def test_what_is_nested_too_deeply_is_refused_and_no_end_of_the_process(text: bytes) -> None:
    for read in (yaml_text.document, yaml_text.documents):
        with pytest.raises(ValueError, match=r"line \d: nested deeper than 100 levels"):
            read(text)


def test_a_long_text_and_a_hundred_levels_are_read() -> None:
    long = "x" * 800_000
    assert yaml_text.document(f'a: "{long}"') == {"a": long}
    document = yaml_text.document("[" * 100 + "]" * 100)
    for _ in range(99):
        (document,) = document
    assert document == []


def test_documents_come_in_order_and_only_as_plain_values() -> None:
    assert yaml_text.documents("a: 1\n---\n---\n[2]\n") == [{"a": 1}, None, [2]]
    assert yaml_text.document("") is None
    with pytest.raises(yaml_text.YAMLError):
        yaml_text.document("!!python/object/apply:os.getpid []")


def test_dates_are_text_as_they_are_to_kubernetes() -> None:
    """In sigs.k8s.io/yaml (RTE ef567ef3, kubectl, the kubelet) text that looks like a date is a
    string. Month 13 is none.
    """
    read = yaml_text.document(
        "{a: 2026-01-31, b: 2026-13-45, c: 2026-01-31T10:00:00Z, 2026-01-31: d}"
    )
    assert read == {
        "a": "2026-01-31",
        "b": "2026-13-45",
        "c": "2026-01-31T10:00:00Z",
        "2026-01-31": "d",
    }
    assert yaml_text.documents("!!timestamp 2026-1\n---\n1\n") == ["2026-1", 1]


@pytest.mark.parametrize(
    "text",
    [
        "!!bool maybe",
        "!!int ''",
        "!!int x",
        "!!float y",
        "!!timestamp [a]",
        "!!binary 1",
        "{[a]: 1}",
        "!!set a",
    ],
)
def test_a_value_that_its_tag_does_not_fit_is_refused(text: str) -> None:
    for read in (yaml_text.document, yaml_text.documents):
        with pytest.raises((yaml_text.YAMLError, ValueError)):
            read(text)


def test_repeated_keys_are_found_in_their_own_mapping_alone() -> None:
    text = (
        "a: {b: 1, c: 2}\nd:\n- {b: 1}\n- {b: 2, a: [a, a], b: 3}\n? [b]\n: b\nb: &x "
        "b\nc: *x\na: 1\n"
    )
    assert [(each.line, each.key) for each in yaml_text.repeated_keys(text)] == [(4, "b"), (9, "a")]
    assert yaml_text.repeated_keys("a: b\nb: a\n") == []
