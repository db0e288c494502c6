"""The ledger: the one fold of the log into nodes, charges and bounds that every reader uses."""
