"""One text as Java sees it, in plain Python: what is not UTF-8 becomes U+FFFD where Java 17 puts it.

Python's own `replace` differs only in encoded surrogates (`ED A0 80`), of which it makes three characters and Java
one (`String.decodeUTF8_UTF16`, `malformed3`). `java_string` has the same rules as kernels, for many texts.
"""

from __future__ import annotations

import codecs

_REPLACEMENT = "\ufffd"


def decode_utf8(data: bytes) -> str:
    """`new String(data, UTF_8)` of Java 17."""
    return data.decode("utf-8", "spark_mq.java")


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    lead = error.object[error.start : error.start + 3]
    if len(lead) < 2 or lead[0] != 0xED or not 0xA0 <= lead[1] <= 0xBF:
        return _REPLACEMENT, error.end
    is_whole = len(lead) == 3 and lead[2] & 0xC0 == 0x80
    return _REPLACEMENT, error.start + (3 if is_whole else 2)


codecs.register_error("spark_mq.java", _replace_as_java)
