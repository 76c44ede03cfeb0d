"""The life of one message, by look-ups only.

Read `life`. `life_store` finds all records of a message, `pairing` says which follows from which,
and `outcome` what became of it, also which groups are past it. `situation` is about one
record alone, by the settings of its broker. An `event` is one line of a life.
"""
