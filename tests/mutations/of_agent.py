"""Planted bugs of the agent (see `table`). Values only."""

from __future__ import annotations

from tests.mutations.table import Mutation

CORE, SERVICE = "services/agent/core.py", "services/agent/service.py"

AGENT = (
    Mutation(
        "a shared pool keeps the CPUs of sets",
        CORE,
        "machine.of(each_cpu(wish.zones)) & ~taken & ~machine.reserved",
        "machine.of(each_cpu(wish.zones)) & ~machine.reserved",
        "tests/agent/test_core.py -k no_order",
    ),
    Mutation(
        "another sandbox of a pod is left out when pools are looked at",
        CORE,
        "for other in state.pods.values() if other.sandbox != pod.sandbox]",
        "for other in state.pods.values() if other.uid != pod.uid]",
        "tests/agent/test_core.py -k new_sandbox",
    ),
    Mutation(
        "an overtaken call is believed",
        CORE,
        "if key in given and given[key].given != sets[key]",
        "if False",
        "tests/agent/test_core.py -k come_last",
    ),
    Mutation(
        "the statement outlives the registration",
        SERVICE,
        "            await connection.close()\n            self._unregistered()",
        "            await connection.close()",
        "tests/agent/test_service.py -k sets_nothing_while",
    ),
    Mutation(
        "pods whose end was not reported keep their CPUs",
        SERVICE,
        "            if self._node.is_gone(cgroup):",
        "            if False:",
        "tests/agent/test_service.py -k not_reported",
    ),
    Mutation(
        "a frame is as long as its message",
        "services/agent/ttrpc.py",
        "MAX_FRAME = 4096",
        "MAX_FRAME = MAX_MESSAGE",
        "tests/agent/test_reading.py -k no_frame",
    ),
    Mutation(
        "a kubelet's update takes a container's CPUs away",
        "services/agent/handlers.py",
        "if entry is not None and entry.given is not None and entry.given != Cpuset():",
        "if False:",
        "tests/agent/test_recorded.py",
    ),
)
