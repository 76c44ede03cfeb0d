"""The rules of `spark_mq.format` for many records at once, as loops over NumPy arrays that numba compiles.

A kernel that was compiled once on a machine is loaded without numba, whose import takes half a second. The first call
of a kernel in a process loads LLVM, which takes 30 ms. So a planning worker of Spark or a point look-up imports these
modules in the function that needs them; `spark_mq.format.array_types` has the types of arrays.

Read `kernel` (how a function is compiled, and all of them ahead), `cache` (where the result is kept),
`machine_code` (how it is loaded and called), `instructions` (what takes the place of some calls) and `big_endian`
first, then `frames` (where the parts of each record are), `entries` (the heads before the records of a DLedger log),
`resync` (the first record of a split), `properties`, `java_string`, `crc`. Then what is built from frames: `columns`
with `fields` and `gather` (Arrow columns, decompressed bodies), `batches` (of limited size), `queue_table` (numbers of
queues), `dispatch` (consume queue units), `index_keys`, `index_put` and `index_look_up` (index entries and files),
`recovery` (the checks of a broker that starts). `encode` and `property_writer` make records, and `inner_batches` those
of the messages in a batch.

Some modules have a twin in plain Python for single records. Tests compare the two, so change both:

| here | twin in `spark_mq.format` |
| --- | --- |
| `frames` | `record` |
| `entries` | `dledger` |
| `properties` | `properties` |
| `java_string` | `java_text` |
| `columns`, `fields`, `inner_batches` | `message_row`, `message_id` |
| `batches`, `index_keys` | `dispatch`, `index_file.index_key_hash` |
| `index_look_up` | `index_file` |

A module here may import what `spark_mq.format` may, and numba.
"""
