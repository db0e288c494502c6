"""`compat: upstream`: the NodeResourceTopologyMatch plugin (scheduler-plugins 903da7df), defects
included, as pure values.

Every answer equals that of the Go plugin, for comparison and migration. The default mode shares no
code with this package. If the original panics, the docstring of the module says what is returned
instead.
"""
