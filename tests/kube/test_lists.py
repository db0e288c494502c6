"""A list is a list: kind, items with names, a version. Any other answer with 200 is an error that
names the problem.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from shared.kube.client import KubeClient
from shared.kube.lists import page_problem
from shared.kube.port import KubeUnavailableError
from tests.kube.test_transport import Server, server  # noqa: F401 - fixture

PAGE: dict[str, Any] = {
    "kind": "PodList",
    "apiVersion": "v1",
    "metadata": {"resourceVersion": "7"},
    "items": [{"metadata": {"name": "p", "uid": "u"}}],
}


def changed(**fields: Any) -> dict[str, Any]:
    page = copy.deepcopy(PAGE) | fields
    return {name: value for name, value in page.items() if value != "absent"}


def test_a_page_of_a_list_is_one() -> None:
    assert page_problem("pods", PAGE) == ""
    assert page_problem("pods", changed(items=[])) == ""


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ({}, "its kind is 'None', not PodList"),
        (changed(kind="NodeList"), "its kind is 'NodeList'"),
        (changed(kind="Status"), "its kind is 'Status'"),
        (changed(items="absent"), "no items"),
        (changed(items=None), "no items"),
        (changed(items={}), "no items"),
        (changed(metadata="absent"), "no resourceVersion"),
        (changed(metadata={}), "no resourceVersion"),
        (changed(metadata={"resourceVersion": ""}), "no resourceVersion"),
        (changed(metadata={"resourceVersion": 7}), "no resourceVersion"),
        (changed(metadata={"resourceVersion": "7", "continue": 3}), "continue"),
        (changed(items=[{}]), "items[0] has no name and uid"),
        (changed(items=[*PAGE["items"], None]), "items[1] has no name and uid"),
        (changed(items=[{"metadata": {"name": "p", "uid": ""}}]), "items[0]"),
    ],
)
def test_what_is_no_list_is_named(page: dict[str, Any], says: str) -> None:
    assert says in page_problem("pods", page)


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>503 upstream</body></html>",
        b"",
        b"{}",
        b"[]",
        msgspec.json.encode(changed(metadata={})),
        msgspec.json.encode(changed(kind="NodeList")),
    ],
)
async def test_an_answer_200_that_is_no_list_is_an_error_with_a_remedy(
    server: Server, body: bytes
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
    server.answers = [head + body]
    client = KubeClient(server.url)
    with pytest.raises(KubeUnavailableError, match=r"is not a list of .*is a proxy in between"):
        await client.list("pods")
    await client.close()
