"""A live cluster as tables: the rows of a store, from the brokers' answers.

The data's way: `options` ─▶ `cluster` (the brokers that answer, and which queues a read has) ─▶ `messages` (pulls ─▶
Arrow batches), `message_stream` (the same, batch after batch), or `tables` (the other tables).
"""
