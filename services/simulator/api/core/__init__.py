"""Pure rules of the simulated API server: objects in, objects or a refusal out. No clock, no I/O,
no event loop.
"""
