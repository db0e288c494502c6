"""How good is a node that passed the filter: one strategy a file, all behind one protocol, in exact
integers.

Adding a strategy is one file here and one line in `registry`. Strategies must not know nodes, pods,
policies or the log; they are given a request and zones, or columns of them, and answer 0 to 100.
"""
