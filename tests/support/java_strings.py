"""Java's `String.hashCode` in plain Python, and byte strings that are not always UTF-8."""

from __future__ import annotations

from hypothesis import strategies as st

pieces = st.one_of(
    st.text(min_size=1, max_size=3).map(str.encode),
    st.sampled_from([bytes((byte,)) for byte in (0x41, 0x80, 0x9F, 0xBF, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xF8)]),
    st.binary(min_size=1, max_size=3),
)


mixed_bytes = st.lists(pieces, max_size=10).map(b"".join)


def java_hash(text: str) -> int:
    """`String.hashCode` in plain Python."""
    units = text.encode("utf-16-be")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[index : index + 2])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
