"""Old files deleted as a broker does it: a plan that names each file, and the deletion. No Spark.

- `plan`: which files, in which order.
- `expire`: the plan carried out while no broker can start, and a report.
"""
