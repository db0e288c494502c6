"""One module for each kind of vector file; the runner discovers them by name."""
