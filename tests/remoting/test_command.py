"""Commands as bytes: what is written is read again, and no bytes lead to another error than `ProtocolError`."""

from __future__ import annotations

import contextlib
import json
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import OptionError, ProtocolError
from spark_mq.remoting import RemotingCommand, decode, decode_frames, encode
from spark_mq.remoting.codes import LanguageCode, RequestCode
from spark_mq.remoting.command import MAX_FRAME_SIZE, RESPONSE_FLAG, SerializeType

INTEGERS = st.integers(-(1 << 31), (1 << 31) - 1)
SHORTS = st.integers(-(1 << 15), (1 << 15) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@st.composite
def commands(draw: st.DrawFn) -> RemotingCommand:
    """Any command that its kind of header can have."""
    kind = draw(st.sampled_from(SerializeType))
    number = INTEGERS if kind == SerializeType.JSON else SHORTS
    return RemotingCommand(
        draw(number),
        draw(st.dictionaries(TEXTS, TEXTS, max_size=5)),
        draw(st.binary(max_size=100)),
        draw(INTEGERS),
        draw(INTEGERS),
        draw(st.none() | TEXTS.filter(bool)),
        draw(st.sampled_from(LanguageCode)),
        draw(number),
        kind,
    )


@given(commands())
def test_a_command_that_is_encoded_is_decoded(command: RemotingCommand) -> None:
    assert decode(encode(command)) == command


@given(st.lists(commands(), max_size=4), st.data())
def test_the_frames_of_captured_traffic_are_decoded_up_to_a_cut(
    sent: list[RemotingCommand], data: st.DataObject
) -> None:
    frames = [encode(command) for command in sent]
    size = data.draw(st.integers(0, sum(map(len, frames))))
    whole = [sum(map(len, frames[: number + 1])) <= size for number in range(len(frames))]
    assert list(decode_frames(b"".join(frames)[:size])) == sent[: sum(whole)]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_frame_are_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(struct.pack(">i", len(data) + 1) + data)
    with contextlib.suppress(ProtocolError):
        decode(struct.pack(">i", len(data)) + data)


@given(commands(), st.data())
def test_a_changed_byte_is_another_command_or_a_protocol_error(command: RemotingCommand, data: st.DataObject) -> None:
    frame = bytearray(encode(command))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ProtocolError):
        decode(bytes(frame))


@pytest.mark.parametrize("value", ["x", 1.5, None, 1 << 31, [1], {"a": 1}, True])
def test_a_json_header_whose_code_is_not_an_integer_of_32_bits_is_refused(value: object) -> None:
    header = json.dumps({"code": value}).encode()
    frame = struct.pack(">iI", 4 + len(header), len(header)) + header
    with pytest.raises(ProtocolError, match="field code"):
        decode(frame)


def test_a_json_header_nests_too_deep() -> None:
    header = b'{"code":0,"extFields":' + b"[" * 100_000 + b"}"
    with pytest.raises(ProtocolError, match="not JSON"):
        decode(struct.pack(">iI", 4 + len(header), len(header)) + header)


@pytest.mark.parametrize("length", [-1, 0, 3, MAX_FRAME_SIZE - 3, (1 << 31) - 1, -(1 << 31)])
def test_lengths_that_no_frame_has_are_refused_before_memory_is_taken(length: int) -> None:
    with pytest.raises(ProtocolError, match=str(length)):
        list(decode_frames(struct.pack(">i", length) + bytes(100)))


def test_a_code_of_more_than_16_bits_needs_json() -> None:
    command = RemotingCommand(RequestCode.POP_MESSAGE, serialize_type=SerializeType.ROCKETMQ)
    with pytest.raises(OptionError, match="use JSON"):
        encode(command)
    assert decode(encode(replace(command, serialize_type=SerializeType.JSON))).code == RequestCode.POP_MESSAGE


def test_a_command_longer_than_a_frame_is_refused() -> None:
    with pytest.raises(OptionError, match="send less"):
        encode(RemotingCommand(RequestCode.SEND_MESSAGE, body=bytes(MAX_FRAME_SIZE)))


def test_flags_are_those_of_java() -> None:
    command = RemotingCommand(0, flag=RESPONSE_FLAG)
    assert command.is_response
