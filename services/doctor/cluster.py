"""Judge the Kubernetes side: rights of the services, the NodeResourceTopology definition. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from services.doctor.finding import Finding, note, problem, warning
from shared.kube.rights import Right

ABOUT = "cluster"
_GRANT_TO_ACCOUNT = "kubectl apply -k <overlay>, which contains k8s/base/rbac.yaml"
_GRANT_TO_USER = "bind the user of the kubeconfig to the roles in k8s/base/rbac.yaml"
# `rights.BY_SERVICE` does not list these: they depend on options that the API does not show.
_OPTIONAL = (
    "not checked: rights that only options need (exporters that write NodeResourceTopology "
    "objects or pod conditions, or list ResourceSlices; NATS logins by token; the start-up taint)"
)


def judge_rights(
    answers: Mapping[str, Mapping[Right, bool]],
    unanswered: Mapping[str, str],
    accounts: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield the missing rights by service, and the rights that could not be checked.

    `answers` is service -> right -> whether it is granted; `unanswered` is service -> why the API
    did not answer; `accounts` is service -> its service account, "" for the current credentials.
    """
    for service, rights in answers.items():
        missing = sorted(right for right, granted in rights.items() if not granted)
        if missing:
            account = accounts[service]
            subject = f" (as {account})" if account else " (as the user of the kubeconfig)"
            yield problem(
                ABOUT,
                f"{service} may not: {', '.join(map(str, missing))}{subject}",
                _GRANT_TO_ACCOUNT if account else _GRANT_TO_USER,
            )
    for reason in sorted(set(unanswered.values())):
        services = [service for service, why in unanswered.items() if why == reason]
        account = accounts[services[0]]
        impersonation = (
            f" --as={account}, as a user with the right to impersonate" if account else ""
        )
        yield warning(
            ABOUT,
            f"not checked: rights of {', '.join(services)}: {reason}",
            f"kubectl auth can-i --list{impersonation}",
        )
    yield note(ABOUT, _OPTIONAL)


def judge_definition(versions: tuple[str, ...]) -> Iterator[Finding]:
    """Judge the served versions of topology.node.k8s.io."""
    remedy = "kubectl apply -f k8s/components/noderesourcetopology/crd.yaml"
    served = f"NodeResourceTopology is served as {', '.join(versions)}"
    if not versions:
        yield warning(
            ABOUT,
            "NodeResourceTopology is not defined: "
            "nothing is mirrored, and no other exporter's objects are read",
            remedy,
        )
    elif "v1alpha2" not in versions:
        yield warning(ABOUT, f"{served} only: objects are read, not written", remedy)
    else:
        yield note(ABOUT, served)
