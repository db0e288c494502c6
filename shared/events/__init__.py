"""The events of the log: envelope, one file of structs per area, catalog, upcasting, codec."""
