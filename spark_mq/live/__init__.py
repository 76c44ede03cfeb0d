"""A live cluster as tables: the rows of a store, from the answers of its brokers.

- `options`: the options of a read
- `cluster`: the brokers that answer, and the ranges of queues that a read has
- `look_ups`, `cluster_messages`: messages by key, id and queue, as plain records, for point commands
- `broker_life`: the look-ups of a message's life
- `messages`: pulls as Arrow batches
- `message_stream`: the same, batch after batch
- `tables`: the other tables
- `offset_reset`: the offsets of a consumer group set to a time
- `datasource`: columns, and a reader for each table
"""
