"""A recorded history decided again: by the same rules, to see that it comes out the same, or by
others, to see what would be.

Behind `topolog replay whatif`. Stands on `services.comparison` (kubelets and time) and on the pure
cores of the services.
"""
