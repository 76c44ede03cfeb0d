"""The bits of a record's sysFlag (`MessageSysFlag`@5.3.3; compression bits from 4.9.4).

| bits | meaning |
| --- | --- |
| 0x1 | the stored body is compressed |
| 0x2 | multi-tags marker |
| 0xC | transaction: 0 none, 0x4 prepared, 0x8 commit, 0xC rollback |
| 0x10, 0x20 | born host, store host is an IPv6 address |
| 0x40, 0x80 | need-unwrap, inner batch |
| 0x700 | compression: 0 zlib (old clients), 0x100 LZ4, 0x200 zstd, 0x300 zlib |
"""

from __future__ import annotations

COMPRESSED_FLAG = 0x1
TRANSACTION_TYPE_MASK = 0xC
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
BORN_HOST_V6_FLAG = 0x10
STORE_HOST_V6_FLAG = 0x20
INNER_BATCH_FLAG = 0x80
COMPRESSION_TYPE_MASK = 0x700
COMPRESSION_TYPE_SHIFT = 8

TRANSACTION_TYPE_NAMES = ("NONE", "PREPARED", "COMMIT", "ROLLBACK")
"""Names of transaction types, by `(sys_flag & TRANSACTION_TYPE_MASK) >> 2`."""
