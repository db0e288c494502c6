"""A pod's text is read once, and another text never gives the same pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.scheduler.extender.read_pods import KEPT, LARGEST_KEPT_BYTES, ReadPods


def text(cpu: str = "1", **status: Any) -> msgspec.Raw:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    manifest = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [container]},
        "status": status,
    }
    return msgspec.Raw(msgspec.json.encode(manifest))


def test_equal_texts_are_read_once_and_others_each() -> None:
    reads = ReadPods()
    first = reads.read(text())
    assert first.pod.containers[0].requests["cpu"] == 1000
    assert reads.read(text()) is first
    assert reads.read(text("2")).pod.containers[0].requests["cpu"] == 2000
    condition = {"type": "PodScheduled", "status": "False"}
    waiting = reads.read(text(conditions=[condition], nominatedNodeName="n"))
    assert (waiting.unschedulable, waiting.nominated) == (True, "n")
    assert (first.unschedulable, first.nominated) == (False, "")


def test_few_and_small_texts_are_kept() -> None:
    reads = ReadPods()
    first = reads.read(text())
    for cpu in range(2, KEPT + 2):
        reads.read(text(str(cpu)))
    assert reads.read(text()) is not first
    large = text(message="x" * LARGEST_KEPT_BYTES)
    assert reads.read(large) is not reads.read(large)


@pytest.mark.parametrize("no_pod", [b"[]", b"1", b"null"])
def test_a_pod_is_an_object(no_pod: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        ReadPods().read(msgspec.Raw(no_pod))
