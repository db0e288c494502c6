"""The binder's settings: TOPOLOG_* variables or a YAML/TOML file (TOPOLOG_CONFIG)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from services.binder.admissions import Annotate
from shared.runtime.settings import CommonSettings


class BinderSettings(CommonSettings, frozen=True, kw_only=True):
    """`concurrency` bounds binding calls in flight. `announce` writes conditions and Kubernetes
    Events; a Scheduled event only for pods of `scheduler_name`, because other schedulers write
    their own. An eviction that a PodDisruptionBudget refuses is tried `evict_attempts` times, with
    longer pauses each time. `kai_placement` writes on each admitted pod where it is, as
    KAI-Scheduler's exporter does; with `auto` from the first pod of KAI-Scheduler on."""

    kubeconfig: str = ""
    scheduler_name: str = "topolog"
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    announce: bool = True
    lease_ttl_s: Annotated[float, msgspec.Meta(ge=1)] = 5.0
    resend_after_s: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    resend_at_most_every_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    evict_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    kai_placement: Annotate = "auto"
