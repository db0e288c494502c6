"""One place for facts: the envelope, a file per area, the catalog, upcasting, the codec."""
