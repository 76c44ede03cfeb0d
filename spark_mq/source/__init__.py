"""The `rocketmq` data source: tables over a store, for `spark.read`."""
