"""What every service runs on: settings, the service skeleton, consumers and projectors of the log,
relay, leadership, clock.
"""
