"""What is wrong on the Kubernetes side: rights of the services, the topology definition. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from services.doctor.finding import Finding, note, problem, warning
from shared.kube.rights import Right

ABOUT = "cluster"
_RIGHTS = "kubectl apply -k <overlay>, which holds k8s/base/rbac.yaml; services that are no pods of this cluster: --namespace ''"


def judge_rights(held: Mapping[str, Mapping[Right, bool]]) -> Iterator[Finding]:
    """`held` is service -> right -> whether its account has it."""
    if not held:
        yield note(
            ABOUT, "the rights of the services' accounts cannot be asked for with these credentials"
        )
    for service, rights in held.items():
        missing = sorted(right for right, has in rights.items() if not has)
        if missing:
            named = ", ".join(map(str, missing))
            yield problem(ABOUT, f"{service} may not: {named}", _RIGHTS)


def judge_definition(versions: tuple[str, ...]) -> Iterator[Finding]:
    """The versions of topology.node.k8s.io that are served."""
    mend = "kubectl apply -f k8s/components/noderesourcetopology/crd.yaml"
    if not versions:
        yield warning(
            ABOUT,
            "NodeResourceTopology is not defined: nothing is mirrored, no other exporter is read",
            mend,
        )
    elif "v1alpha2" not in versions:
        yield warning(
            ABOUT,
            f"NodeResourceTopology is served as {', '.join(versions)} alone: objects are read, not written",
            mend,
        )
    else:
        yield note(ABOUT, f"NodeResourceTopology is served as {', '.join(versions)}")
