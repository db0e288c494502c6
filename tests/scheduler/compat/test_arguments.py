"""Plugin arguments: upstream's names, values and defaults are taken, and every mistake is named at
once.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.upstream_compat.arguments import Arguments
from plugins.upstream_compat.arguments_reading import Outcome, read, read_text
from tests.fixtures.examples import examples

FULL = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: topo-aware
  plugins: {multiPoint: {enabled: [{name: NodeResourceTopologyMatch}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {whatever: 1}
  - name: NodeResourceTopologyMatch
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourceTopologyMatchArgs
      scoringStrategy:
        type: MostAllocated
        resources: [{name: cpu, weight: 3}, {name: vendor.example/gpu, weight: 0}]
      cacheResyncPeriodSeconds: 5
      discardReservedNodes: false
      cache:
        foreignPodsDetect: OnlyExclusiveResources
        resyncMethod: All
        informerMode: Shared
        resyncScope: OnlyResources
      preemptionMode: Enabled
"""


def only(outcome: Outcome) -> Arguments:
    assert not outcome.errors, outcome.errors
    (arguments,) = outcome.profiles.values()
    return arguments


def fields(outcome: Outcome) -> set[str]:
    return {problem.field for problem in outcome.errors}


def test_a_full_scheduler_configuration_is_taken_by_profile() -> None:
    assert read_text(FULL).profiles == {
        "topo-aware": Arguments(
            strategy="MostAllocated",
            weights={"cpu": 3, "vendor.example/gpu": 1},
            cache_resync_period_s=5,
            foreign_pods_detect="OnlyExclusiveResources",
            resync_method="All",
            informer_mode="Shared",
            resync_scope="OnlyResources",
            preemption_mode="Enabled",
        )
    }
    assert read_text(FULL).problems == ()


def test_an_empty_args_object_has_upstreams_defaults_and_thereby_no_cache() -> None:
    arguments = only(read({}))
    assert arguments == Arguments()
    assert arguments.cache == "passthrough"
    assert (arguments.strategy, arguments.weights) == ("LeastAllocated", {"cpu": 1, "memory": 1})
    assert (arguments.foreign_pods_detect, arguments.resync_scope, arguments.preemption_mode) == (
        "All",
        "All",
        "Disabled",
    )


@pytest.mark.parametrize(
    ("args", "cache"),
    [
        ({"cacheResyncPeriodSeconds": 10}, "overreserve"),
        ({"cacheResyncPeriodSeconds": 0}, "passthrough"),
        ({"discardReservedNodes": True}, "discardreserved"),
        ({"discardReservedNodes": True, "cacheResyncPeriodSeconds": 10}, "discardreserved"),
    ],
)
def test_the_cache_is_chosen_in_upstreams_order(args: dict[str, object], cache: str) -> None:
    assert only(read(args)).cache == cache


def test_json_text_is_taken_as_well_as_yaml() -> None:
    assert only(read_text(json.dumps({"cacheResyncPeriodSeconds": 30}))).cache_resync_period_s == 30


def test_every_mistake_is_named_at_once_with_a_remedy() -> None:
    outcome = read(
        {
            "kind": "NodeResourcesFitArgs",
            "scoringStrategy": {
                "type": "LeastAlocated",
                "resources": [{"name": "", "weight": -1}, {"weight": "x"}],
            },
            "cacheResyncPeriodSeconds": "5s",
            "discardReservedNode": True,
            "cache": {"foreignPodsDetect": "Aggressive", "resyncMethods": "All", "informerMode": 3},
            "preemptionMode": "Yes",
        }
    )
    assert fields(outcome) == {
        "kind",
        "scoringStrategy.type",
        "scoringStrategy.resources[0].name",
        "scoringStrategy.resources[0].weight",
        "scoringStrategy.resources[1].name",
        "scoringStrategy.resources[1].weight",
        "cacheResyncPeriodSeconds",
        "discardReservedNode",
        "cache.foreignPodsDetect",
        "cache.resyncMethods",
        "cache.informerMode",
        "preemptionMode",
    }
    assert outcome.profiles == {}
    remedies = {problem.field: problem.remedy for problem in outcome.errors}
    assert "did you mean LeastAllocated?" in remedies["scoringStrategy.type"]
    assert "did you mean discardReservedNodes?" in remedies["discardReservedNode"]


def test_a_scoring_strategy_without_type_is_refused_as_upstream_does() -> None:
    assert fields(read({"scoringStrategy": {"resources": [{"name": "cpu", "weight": 1}]}})) == {
        "scoringStrategy.type"
    }


def test_what_upstream_takes_silently_for_something_else_is_refused() -> None:
    wrong = {
        "foreignPodsDetect": "none",
        "resyncMethod": "all",
        "informerMode": "dedicated",
        "resyncScope": "all",
    }
    assert fields(read({"cache": wrong})) == {f"cache.{name}" for name in wrong}


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"cacheResyncPeriodSeconds": 1}, "cacheResyncPeriodSeconds"),
        ({"cacheResyncPeriodSeconds": 9, "discardReservedNodes": True}, "cacheResyncPeriodSeconds"),
        ({"preemptionMode": "Enabled"}, "preemptionMode"),
    ],
)
def test_legal_settings_without_effect_or_with_harm_are_warnings(
    args: dict[str, object], field: str
) -> None:
    outcome = read(args)
    assert not outcome.errors
    assert [problem.field for problem in outcome.problems] == [field]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        "x",
        "profiles: 3",
        "profiles: [1]",
        "kind: KubeSchedulerConfiguration",
        "\0",
    ],
)
def test_a_document_that_is_none_is_refused(text: str) -> None:
    assert read_text(text).errors


def test_the_same_resource_twice_and_the_same_profile_twice_are_refused() -> None:
    twice = [{"name": "cpu", "weight": 1}, {"name": "cpu", "weight": 2}]
    assert fields(read({"scoringStrategy": {"type": "MostAllocated", "resources": twice}})) == {
        "scoringStrategy.resources[1].name"
    }
    profile = {"pluginConfig": [{"name": "NodeResourceTopologyMatch", "args": {}}]}
    assert fields(read({"profiles": [profile, profile]})) == {"profiles[1].pluginConfig[0].name"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "scoringStrategy",
                    "type",
                    "resources",
                    "name",
                    "weight",
                    "cache",
                    "profiles",
                    "pluginConfig",
                    "args",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=examples(300), deadline=None)
def test_no_document_raises(document: object) -> None:
    outcome = read(document)
    assert bool(outcome.profiles) != bool(outcome.errors)


def test_a_key_that_is_there_twice_is_refused_with_its_line() -> None:
    """As a kube-scheduler refuses it ("key already set in map"): the first of the two would be lost
    without a word.
    """
    text = (
        "kind: NodeResourceTopologyMatchArgs\ncache: {resyncMethod: "
        "All}\nscoringStrategy:\n  type: MostAllocated\ncache: {}\n"
    )
    outcome = read_text(text)
    assert (outcome.profiles, [str(each) for each in outcome.errors]) == (
        {},
        ["line 5: cache: is there already; keep one of the two"],
    )
    assert read_text(text.replace("\ncache: {}", "")).profiles
