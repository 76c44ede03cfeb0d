"""Consume queue files out of staged units.

`build` runs the others in this order: `existing` (queues before the job), `runs` (the staged runs, and which task
writes them), `plan` (offsets and files of each queue), `writer` (a Spark task that assembles whole files), `findings`
(missing, doubled and contradicted units) and `carry_over` (queues that the log does not know).
"""
