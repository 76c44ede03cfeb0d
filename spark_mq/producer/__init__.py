"""Rows sent to a topic of a live cluster, as a RocketMQ producer sends messages.

- `options`: the options of a write
- `message_queues`: the queues to which messages can be sent, and which brokers are left out for a time
- `batches`: rows as the bodies of requests
- `resend`: a stored message as one that is sent again
- `journal`, `resender`: messages sent again, no one twice
- `writer`, `stream_writer`: what `df.write` and `writeStream` do
"""
