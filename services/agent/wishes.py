"""What a pod's annotations say about its CPUs and memory. Pure.

1. `resource-status` is Koordinator's, as the binder or koord-scheduler writes it. A pod with a
   `cpuset` gets these CPUs for itself. A pod with CPU amounts by zone shares its zones' CPUs.
2. `numa-memory-policy` `bind` confines memory to the zones of the record. Koordinator names the
   key but gives it no effect; the values `none`, `record` and `bind` are Topolog's.
3. `device-allocated` is Koordinator's. Of it only GPUs are read.

Source: koordinator a7a1b76b, apis/extension/resource.go (ResourceStatus).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from shared.domain.resources import CPU, is_memory
from shared.domain.zone_allocation import DEVICE_ALLOCATED, MEMORY_POLICY, RESOURCE_STATUS, Status
from shared.kubelet.cpuset import cpus_of, parse_cpus
from shared.owned.annotations import devices_of
from shared.owned.devices import GPU

MemoryPolicy = Literal["none", "record", "bind"]
MAX_ZONE = 1023
# Room for 4096 single CPUs. Users may write annotations, and long ones would delay the runtime.
MAX_TEXT = 24 << 10


class Wish(msgspec.Struct, frozen=True):
    """The CPUs and memory zones that a pod should get. Sets are integers: bit i stands for CPU or
    zone i.

    `cpus` are the pod's own. Without them it shares the CPUs of `zones`; without both it runs on
    every CPU that no pod has for itself. `memory` are the zones that it is confined to, 0 for all.
    """

    cpus: int = 0
    zones: int = 0
    memory: int = 0


NOTHING = Wish()


def read(annotations: Mapping[str, str], labels: Mapping[str, str], default: MemoryPolicy) -> Wish:
    """Return what the annotations ask for. Raises ValueError that names the annotation."""
    text = annotations.get(RESOURCE_STATUS, "")
    if not text:
        return NOTHING
    if len(text) > MAX_TEXT:
        raise ValueError(f"annotation {RESOURCE_STATUS} is longer than {MAX_TEXT} characters")
    try:
        status = msgspec.json.decode(text, type=Status)
        cpus = parse_cpus(status.cpuset)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ValueError(f"annotation {RESOURCE_STATUS} is not readable: {error}") from error
    zones = [record.node for record in status.zones if CPU in record.resources]
    memory = [record.node for record in status.zones if any(map(is_memory, record.resources))]
    if any(not 0 <= zone <= MAX_ZONE for zone in (*zones, *memory)):
        raise ValueError(f"annotation {RESOURCE_STATUS} names a zone outside of 0 to {MAX_ZONE}")
    policy = annotations.get(MEMORY_POLICY) or labels.get(MEMORY_POLICY) or default
    return Wish(
        cpus,
        0 if cpus else cpus_of(zones),
        cpus_of(memory) if policy == "bind" else 0,
    )


def gpus(annotations: Mapping[str, str]) -> tuple[str, tuple[int, ...]]:
    """Return the pod's GPUs by id, or by minor without an id (`GPU-a,GPU-b`), and their minors.
    Raises ValueError that names the annotation.
    """
    if len(annotations.get(DEVICE_ALLOCATED, "")) > MAX_TEXT:
        raise ValueError(f"annotation {DEVICE_ALLOCATED} is longer than {MAX_TEXT} characters")
    cards = [card for card in devices_of(annotations) if card.type == GPU]
    names = ",".join(card.id or str(card.minor) for card in cards)
    return names, tuple([card.minor for card in cards])
