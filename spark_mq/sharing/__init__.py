"""How the queues of a topic are shared out among the consumers of a group.

- `message_queue`: a queue as a client names it, and the order of Java's texts.
- `strategies`: the allocation strategies of the Java client, as pure functions.
- `hash_ring`: the ring of strategy CONSISTENT_HASH.
- `shares`: what each consumer gets of a store's topic, how uneven that is, and which queues move.
- `begin_offsets`: where a new consumer group begins in each queue, and where a reset puts a group.
"""
