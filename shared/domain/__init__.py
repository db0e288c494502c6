"""The words of the problem: resources, quantities, pods, zones, placements, refusals. Imports
nothing of ours.
"""
