"""What keeps a whole profile of nodes from a shape, before any amount is compared: report, policy,
zones.
"""

from __future__ import annotations

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import Profile
from services.scheduler.snapshot.pod_class import Plan, Shape
from shared.domain.refusal import Reason

_STATES = {"missing": Reason.NO_REPORT, "expired": Reason.REPORT_EXPIRED}


def plan_for(shape: Shape, profile: Profile, config: CycleConfig) -> Plan:
    """The shape's plan; nothing is aligned on a node that may be used without a report."""
    if profile[0] and config.on_missing_report == "pass":
        return Plan("free", profile[1])
    return shape.plan(profile)


def blocked(
    shape: Shape, profile: Profile, plan: Plan, config: CycleConfig
) -> tuple[Reason, str] | None:
    """The reason and its subject, None when the amounts decide."""
    state = profile[0]
    if state and shape.zonal and config.on_missing_report == "refuse":
        return _STATES.get(state, Reason.REPORT_MALFORMED), "" if state in _STATES else state
    if plan.rule.problem and (shape.wanted or plan.mode != "free"):
        return (
            Reason.POLICY_UNKNOWN if profile[1].problem else Reason.POLICY_MISMATCH
        ), plan.rule.problem
    if plan.mode != "free" and not profile[4]:
        return Reason.NO_ZONES, ""
    return None
