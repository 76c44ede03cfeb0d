"""What every job of this package needs, whatever it does.

`tasks` runs its tasks: on Spark (`session`), with the check that they see the driver's files (`shared_storage`), or in
this process. `context` bundles that with progress without Spark's help (`progress`) and the output folder that is
complete or unchanged (`output_committer`). `task_errors` and `storage_errors` turn errors of Spark and of the operating
system into errors of this package.
"""
