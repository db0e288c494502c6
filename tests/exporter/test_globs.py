"""Patterns of pods to leave out, judged as Go's filepath.Match judges them (cases of its
match_test.go, and of RTE ef567ef3).
"""

from __future__ import annotations

import time

import pytest

from services.exporter import globs

MALFORMED = ("[", "[]a]", "[-]", "[x-]", "[-x]", "[^", "[^]", "[^bc", "a[", "[a-b-c]", "\\", "[\\")


@pytest.mark.parametrize(
    ("pattern", "name", "same"),
    [
        ("abc", "abc", True),
        ("*", "abc", True),
        ("*c", "abc", True),
        ("a*", "a", True),
        ("a*b*c*d*e*", "axbxcxdxexxx", True),
        ("a*b?c*x", "abxbbxdbxebxczzx", True),
        ("a*b?c*x", "abxbbxdbxebxczzy", False),
        ("ab[c]", "abc", True),
        ("ab[b-d]", "abc", True),
        ("ab[e-g]", "abc", False),
        ("ab[^c]", "abc", False),
        ("ab[^b-d]", "abc", False),
        ("ab[^e-g]", "abc", True),
        ("[!a]b", "ab", True),
        ("[!a]b", "cb", False),
        ("a\\*b", "a*b", True),
        ("a\\*b", "ab", False),
        ("a?b", "a☺b", True),
        ("a[^a]b", "a☺b", True),
        ("[a-ζ]*", "α", True),
        ("*[a-ζ]", "A", False),
        ("[\\]a]", "]", True),
        ("[\\-x]", "-", True),
        ("[x\\-]", "z", False),
        ("[b-a]", "a", False),
        ("[^b-a]", "a", True),
        ("web-*", "web-a.b", True),
        ("*x", "xxx", True),
    ],
)
def test_a_pattern_means_what_it_means_to_go(pattern: str, name: str, same: bool) -> None:
    assert globs.matches(pattern, name) == same


@pytest.mark.parametrize("pattern", MALFORMED)
def test_a_malformed_pattern_matches_nothing(pattern: str) -> None:
    assert globs.compiled(pattern) is None
    assert not any(globs.matches(pattern, name) for name in ("a", "-", "^", "]", pattern))


def test_no_pattern_takes_long() -> None:
    begun = time.monotonic()
    assert not globs.matches("a*" * 100 + "b", "a" * 253)
    assert time.monotonic() - begun < 1
