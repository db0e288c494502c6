"""Replays a recorded history: under the same rules, to check that the decisions are the same, or
under other rules, to see their effect. The code behind `topolog replay whatif`.

It uses `services.comparison` (kubelets and time) and the pure cores of the services.
"""
