"""Repair: what a check found wrong is made again from the log, and put in place of the damaged files.

`repair` checks the store (`spark_mq.verifier`), and `plan` says which files are changed, by what `verifier.codes` says
about each finding. `index_gaps` says what the index lacks, and `new_files` makes all new files. `changes` puts them in
place, with a backup. `log_edit` has the two verbs that take records out of the log. `comparison` compares the logs of
two replicas, and `from_replica` takes what is damaged in one log from the other.
"""
