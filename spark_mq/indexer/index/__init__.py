"""Index files out of staged entries.

`build` runs the others in this order: `pending` (the entries that the index lacks), `plan` (the file of each entry) and
`writer` (a Spark task that assembles a whole file).
"""
