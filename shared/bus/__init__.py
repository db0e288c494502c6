"""The bus: port, in-memory twin, JetStream adapter, subjects. Transport and doorbell, never the
truth.
"""
