"""The life of one message, by look-ups only.

Read `life`, then `message_life`. `key_search` finds all records of a message, `pairing` says which follows from which,
and `outcome` what became of it. `situation` is about one record alone.
"""
