"""Old files deleted as a broker does it. No Spark.

- `plan`: which files, in which order.
- `expire`: the plan carried out while no broker can start, and a report.
"""
