"""Index files out of staged entries.

`collector` computes the entries of a split, and `staged_entries` stores them in a file. `build` runs the others in this
order: `pending` (the entries that the index lacks), `plan` (the file of each entry) and `writer` (a Spark task that
assembles a whole file).
"""
