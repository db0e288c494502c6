"""One module per kind of vector file. Each has `KIND`, `recognises(doc)`, `check(case)` and, if
needed, `cases(doc)`.

`check` returns the differences between the recorded and our own answer, as texts; none means the
case passes. A new kind is a new file here: the registry finds it.
"""
