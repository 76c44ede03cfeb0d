"""The batch indexer: consume queues and index files, whole, from the commit log.

Start with `rebuild`: it runs the stages in order, and each stage returns a value. `stage` reads every split of the log
once, by `split_dispatch`; `staged_rows` and `split_rows` describe the result, and `alignment` judges it. `manifest` and
`staged_files` make a killed job resumable. `queue/` and `index/` plan the files and write them. `recovery` gives the
checkpoint that a broker accepts. All stages get a `rebuild_plan`; `report` is built of their results.
"""
