"""The HTTP face of the simulated API server: routes, content negotiation, streams. Rules live in
the core.
"""
