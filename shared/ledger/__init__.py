"""The ledger: the fold that every reader of the log agrees on (design section 4)."""
