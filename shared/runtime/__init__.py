"""The base of every service: settings, service skeleton, consumers and projectors of the log,
relay, leadership, clock.
"""
