"""The log, staged: each split is read once, and its consume queue units and index entries become files.

Start with `stage`: it runs the splits as tasks (`split_dispatch`). A task writes a file of units (`staged_units`) and
one of index entries (`staged_entries`), and returns a row that names them (`split_rows`).
`alignment` judges whether the splits fit together. `manifest` and `staged_files` make a killed job resumable.
"""
