"""Rows sent to a topic of a live cluster, as a RocketMQ producer sends messages.

- `message_queues`: the queues to which messages can be sent, and which brokers are left out for a time
- `resend`: stored messages that are sent again; by `resend_journal`, none of them twice
- `writer`: what `df.write` and `writeStream` do, and its options
"""
