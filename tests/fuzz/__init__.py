"""Fuzzing of every door by which bytes of others come in: `python -m tests.fuzz DOOR --inputs N
--seed S`.
"""
