"""The batch indexer: consume queues and index files, whole, from the commit log.

Start with `rebuild`: it runs the stages in order, and each stage returns a value. `staging/` reads every split of the
log once, and stages units and index entries as files. `queue/` and `index/` plan the files of the output and write
them. `recovery` gives the checkpoint that a broker accepts. All stages get a `rebuild_plan`; `report` is built of their
results.
"""
