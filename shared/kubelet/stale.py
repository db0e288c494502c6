"""Drops the holdings of ended or rejected pods. Each manager does this only at its next call.

The delay is visible from outside only across a restart, because the checkpoints still have the
holdings. Source: kubelet 1.36, removeStaleState and UpdateAllocatedDevices. This module does not
know admission.
"""

from __future__ import annotations

from shared.kubelet import cpu_manager, device_manager, memory_manager
from shared.kubelet.machine import KubeletState, Stale


def drop_stale(state: KubeletState) -> KubeletState:
    """Return the state after all managers dropped stale holdings, as the next admission with hints
    finds it.
    """
    return drop_stale_memory(drop_stale_cpu(drop_stale_devices(state)))


def drop_stale_devices(state: KubeletState) -> KubeletState:
    """The state after the device manager was asked."""
    if not state.stale.devices:
        return state
    devices = state.devices
    for uid in state.stale.devices:
        devices = device_manager.remove_pod(devices, uid)
    stale = Stale((), state.stale.cpu, state.stale.memory)
    return KubeletState(state.kubelet, state.cpu, state.memory, devices, state.pods, stale)


def drop_stale_cpu(state: KubeletState) -> KubeletState:
    """The state after the CPU manager was asked."""
    if not state.stale.cpu:
        return state
    cpu = state.cpu
    for uid in state.stale.cpu:
        cpu = cpu_manager.remove_pod(cpu, uid)
    stale = Stale(state.stale.devices, (), state.stale.memory)
    return KubeletState(state.kubelet, cpu, state.memory, state.devices, state.pods, stale)


def drop_stale_memory(state: KubeletState) -> KubeletState:
    """The state after the memory manager was asked."""
    if not state.stale.memory:
        return state
    memory = state.memory
    for uid in state.stale.memory:
        memory = memory_manager.remove_pod(memory, uid)
    stale = Stale(state.stale.devices, state.stale.cpu, ())
    return KubeletState(state.kubelet, state.cpu, memory, state.devices, state.pods, stale)


def removed(state: KubeletState, uid: str) -> KubeletState:
    """Return the state after a pod ended: no longer listed, its holdings stale. Unknown uids change
    nothing.
    """
    if uid not in state.pods:
        return state
    pods = {pod_uid: active for pod_uid, active in state.pods.items() if pod_uid != uid}
    stale = Stale((*state.stale.devices, uid), (*state.stale.cpu, uid), (*state.stale.memory, uid))
    return KubeletState(state.kubelet, state.cpu, state.memory, state.devices, pods, stale)
