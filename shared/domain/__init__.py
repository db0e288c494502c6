"""The vocabulary of the problem: resources, quantities, pods, zones, placements, refusals. Imports
no other part of Topolog.
"""
