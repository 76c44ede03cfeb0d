"""How the queues of a topic are shared out among the consumers of a group.

- `strategies`: the allocation strategies of the Java client, and `StrategyChoice`, one of them by name.
- `shares`: what each consumer gets of a store's topic, how uneven that is, which queues move, and where
  a new consumer group begins, or a reset puts a group.
"""
