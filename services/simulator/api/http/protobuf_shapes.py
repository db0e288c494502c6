"""Which protobuf fields of the objects that `kubectl create` makes are read, by number, and as
what. Data only.

Source: k8s.io/api generated.proto files (core/v1, apps/v1, batch/v1, scheduling/v1),
k8s.io/apimachinery meta/v1. `kubectl create deployment|job|configmap|priorityclass` send protobuf;
`kubectl apply` sends JSON.
"""

from __future__ import annotations

# Field number -> JSON name and its form: text, texts, number, flag, map, bytes map, or a message. A
# name that ends in `[]` is a list of messages.
Shape = dict[int, tuple[str, "str | Shape"]]

META: Shape = {
    1: ("name", "text"),
    2: ("generateName", "text"),
    3: ("namespace", "text"),
    11: ("labels", "map"),
    12: ("annotations", "map"),
}
_PORT: Shape = {
    1: ("name", "text"),
    2: ("hostPort", "number"),
    3: ("containerPort", "number"),
    4: ("protocol", "text"),
}
_CONTAINER: Shape = {
    1: ("name", "text"),
    2: ("image", "text"),
    3: ("command", "texts"),
    4: ("args", "texts"),
    5: ("workingDir", "text"),
    6: ("ports[]", _PORT),
    14: ("imagePullPolicy", "text"),
}
_POD: Shape = {
    2: ("containers[]", _CONTAINER),
    3: ("restartPolicy", "text"),
    19: ("schedulerName", "text"),
}
_TEMPLATE: Shape = {1: ("metadata", META), 2: ("spec", _POD)}
_SELECTOR: Shape = {1: ("matchLabels", "map")}
_DEPLOYMENT: Shape = {
    1: ("replicas", "number"),
    2: ("selector", _SELECTOR),
    3: ("template", _TEMPLATE),
}
_JOB: Shape = {
    1: ("parallelism", "number"),
    2: ("completions", "number"),
    6: ("template", _TEMPLATE),
    7: ("backoffLimit", "number"),
}
_VALUE: Shape = {
    1: ("metadata", META),
    2: ("value", "number"),
    3: ("globalDefault", "flag"),
    4: ("description", "text"),
    5: ("preemptionPolicy", "text"),
}

SHAPES: dict[str, Shape] = {
    "ConfigMap": {1: ("metadata", META), 2: ("data", "map"), 3: ("binaryData", "bytes map")},
    "Deployment": {1: ("metadata", META), 2: ("spec", _DEPLOYMENT)},
    "Job": {1: ("metadata", META), 2: ("spec", _JOB)},
    "PriorityClass": _VALUE,
}
