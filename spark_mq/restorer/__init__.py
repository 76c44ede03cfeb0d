"""Stores out of messages: a job that writes a commit log, and then everything that is derived from it.

Start with `restore`, `writer` (what Spark calls for a write of a DataFrame) and `restore_request` (their arguments).
The way of a row:

1. `restore`: which rows (`query_rows`: those that only Spark has), and what else is known of their store
   (`source_facts`);
2. `encode_messages`: rows become records (`source_columns`, `record_columns`), in queues that a broker would choose
   (`queue_choice`, `waiting_messages`);
3. `chunk`: a task writes its records as chunks;
4. `placement`: records get their offsets in segments; `segment_task`: one task writes one segment; `offset_map`: the
   old and the new offsets;
5. `store_job` has these steps, which all runs share; `new_store` and `finish` make a whole store, which appears at
   once, with the files of `config/` (`config_files`).

The way of an append (`appended_messages`): `append_target` says where a store ends, and whether it can be appended to.
`append` makes queue files and index files for the new records, and puts everything in place, all or nothing.
"""
