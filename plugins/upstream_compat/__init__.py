"""`compat: upstream`: the NodeResourceTopologyMatch plugin (scheduler-plugins 903da7df), defects
included, as pure values.

Everything here answers exactly as the Go plugin answers, so that a cluster can be moved over and
compared; the default mode lives elsewhere and shares none of it. Where the original panics the
module that would have done so states the verdict given instead.
"""
