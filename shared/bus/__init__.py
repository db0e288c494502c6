"""The bus: port, in-memory implementation, JetStream adapter, subjects. It transports and wakes;
the log is the only source of truth.
"""
