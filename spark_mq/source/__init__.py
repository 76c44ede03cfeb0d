"""The `rocketmq` data source: the tables of a store, for `spark.read` and `spark.readStream`.

Read in this order:

1. `options` and `schema` (`spark_mq.tables` has the tables, options and columns; `spark_mq.datasource` decides which
   reader a read gets);
2. `predicate` (what options and arguments of commands ask for);
3. `planner` (the access path of a `read_plan`), with `topic_plan` and `time_window`; `explain`;
4. the readers: `messages`, with `row_filter` and `topic_messages`; `table_readers`, `queue_logs`;
5. the stream: `message_stream`, `stream_offset`;
6. several stores: `store_choice`, `several_stores`.

`lookup_function` looks keys up: `rocketmq_lookup` and `look_up`. The modules of 1 to 3 run while Spark plans, and so
import no kernels.
"""
