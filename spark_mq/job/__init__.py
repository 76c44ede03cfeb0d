"""What every Spark job of this package needs, whatever it does.

`context` bundles it: the session (`session`), the check that tasks see the driver's files (`shared_storage`), progress
without Spark's help (`progress`), and the output folder that is complete or unchanged (`output_committer`).
`task_errors` and `storage_errors` turn errors of Spark and of the operating system into errors of this package.
"""
