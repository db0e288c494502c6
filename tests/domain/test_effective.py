"""The effective request is the kube-scheduler's: sidecars run next to everything, init containers
one at a time.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.domain.effective import container_request, effective_request
from shared.domain.pod import Container, ContainerKind, Pod


def _pod(*containers: tuple[ContainerKind, int], **more: object) -> Pod:
    made = tuple(Container(f"c{i}", kind, {"cpu": cpu}) for i, (kind, cpu) in enumerate(containers))
    return Pod(uid="u", namespace="n", name="p", containers=made, **more)  # type: ignore[arg-type]


def test_app_containers_add_up() -> None:
    assert effective_request(_pod(("app", 1), ("app", 2))) == {"cpu": 3}


def test_a_large_init_container_counts_alone() -> None:
    assert effective_request(_pod(("init", 9), ("init", 4), ("app", 2))) == {"cpu": 9}


def test_a_sidecar_counts_together_with_later_init_containers_and_the_apps() -> None:
    assert effective_request(_pod(("init", 5), ("sidecar", 2), ("init", 4), ("app", 3))) == {
        "cpu": 6
    }
    assert effective_request(_pod(("sidecar", 2), ("app", 3))) == {"cpu": 5}


def test_pod_level_requests_replace_what_they_name_and_overhead_comes_on_top() -> None:
    pod = _pod(
        ("app", 4), pod_level={"cpu": 10, "vendor.example/gpu": 3}, overhead={"cpu": 1, "memory": 7}
    )
    assert effective_request(pod) == {"cpu": 11, "memory": 7}


def test_a_resource_that_only_an_init_container_asks_for_counts() -> None:
    containers = (
        Container("i", "init", {"vendor.example/gpu": 1}),
        Container("c", "app", {"cpu": 1}),
    )
    assert container_request(containers) == {"cpu": 1, "vendor.example/gpu": 1}


kinds = st.sampled_from(["init", "sidecar", "app"])


@given(st.lists(st.tuples(kinds, st.integers(0, 9)), max_size=8))
def test_equals_the_peak_over_the_pods_life(order: list[tuple[ContainerKind, int]]) -> None:
    order = sorted(order, key=lambda entry: entry[0] == "app")
    moments = [sum(cpu for kind, cpu in order if kind != "init")]
    for index, (kind, cpu) in enumerate(order):
        sidecars = sum(other for before, other in order[:index] if before == "sidecar")
        if kind != "app":
            moments.append(sidecars + cpu)
    assert container_request(_pod(*order).containers).get("cpu", 0) == max(moments)
