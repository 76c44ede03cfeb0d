"""What every job of this package needs, whatever it does.

`tasks` runs its tasks on Spark, or in this process; each gets its own `task_items`. `shared_storage` checks that tasks
of other machines see the driver's files, `progress` shows how far a job is without Spark's help, and `output_committer`
keeps the output complete or unchanged. `task_errors` turns errors of Spark and of the operating system into errors of
this package. `report` is the base of reports.
"""
