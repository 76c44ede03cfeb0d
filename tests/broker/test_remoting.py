"""The protocol against RocketMQ's own classes: the codec of commands, brokers that demand keys, and TLS."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from spark_mq.errors import ProtocolError
from spark_mq.remoting.codes import LanguageCode
from spark_mq.remoting.command import RemotingCommand, SerializeType, decode, encode
from tests.broker import harness
from tests.support.commands import changed, random_command

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]
VERSIONS = ("4.9.7", "5.5.0")
COMMANDS = 3000
LAST_LANGUAGE = {"4.9.7": LanguageCode.RUST, "5.5.0": max(LanguageCode)}
"""The last language that a version knows; it has null for others."""
HEADER_NAMES = {"code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC", "version"}


def fields_of(command: RemotingCommand, version: str) -> dict[str, Any]:
    """A command as the Java class `Codec` writes it."""
    is_known = command.language is not None and command.language <= LAST_LANGUAGE[version]
    return {
        "code": command.code,
        "language": command.language.name if command.language is not None and is_known else None,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "remark": command.remark,
        "extFields": dict(command.ext_fields),
        "serializeType": command.serialize_type.name,
        "body": command.body.hex(),
    }


def without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Java's fields as ours: no body is an empty one, and in a ROCKETMQ header each null text is an empty one."""
    is_json = fields["serializeType"] == SerializeType.JSON.name
    given = fields["extFields"] or {}
    texts = {"" if name == "null" and not is_json else name: value or "" for name, value in given.items()}
    return {**fields, "extFields": texts, "body": fields["body"] or "", "remark": fields["remark"] or None}


def is_plain(frame: bytes) -> bool:
    """Whether Java and we read a header by the same rules; those that we refuse, or that nobody writes, are others."""
    header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")]
    if frame[4] != SerializeType.JSON:
        command = decode(frame)
        return "\ufffd" not in "".join((command.remark or "", *command.ext_fields, *command.ext_fields.values()))
    content = json.loads(header.decode("utf-8", "replace"), strict=False)
    has_halves = re.search(rb"\\ud[89a-f]", header.replace(b"\\ud83d\\ude00", b"")) is not None
    return (
        header.isascii()
        and not has_halves
        and content.keys() <= HEADER_NAMES
        and "opaque" in content  # Java takes its own next number
        and content.get("language", "JAVA") in LanguageCode.__members__  # fastjson reads them in any case
    )


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_java_decodes_what_we_encode_to_the_same_fields(version: str) -> None:
    choice = random.Random(1)
    sent = [random_command(choice) for _ in range(COMMANDS)]
    answers = harness.codec([{"frame": encode(command)[4:].hex()} for command in sent], version)
    assert [without_nulls(answer) for answer in answers] == [fields_of(command, version) for command in sent]


def test_we_decode_what_java_encodes_to_the_same_fields(version: str) -> None:
    choice = random.Random(2)
    languages = [language for language in LanguageCode if language <= LAST_LANGUAGE[version]]
    sent = [fields_of(random_command(choice, languages), version) for _ in range(COMMANDS)]
    nulls = [{**fields, "body": fields["body"] or None, "extFields": fields["extFields"] or None} for fields in sent]
    answers = harness.codec(nulls, version)
    assert [fields_of(decode(bytes.fromhex(answer["frame"])), version) for answer in answers] == sent


def test_changed_frames_are_the_same_commands_or_errors(version: str) -> None:
    choice = random.Random(3)
    frames = [changed(choice, encode(random_command(choice))) for _ in range(COMMANDS)]
    seen: Counter[str] = Counter()
    for frame, answer in zip(
        frames, harness.codec([{"frame": frame[4:].hex()} for frame in frames], version), strict=True
    ):
        try:
            command = decode(frame)
        except ProtocolError:
            seen["refused by both" if "failure" in answer else "refused by us"] += 1
            continue
        if is_plain(frame):
            assert "failure" not in answer, (frame, command)
            assert without_nulls(answer) == fields_of(command, version), frame
            seen["decoded by both"] += 1
    # Java reads JSON that is none, and headers with wrong lengths.
    assert seen["refused by us"] < COMMANDS / 8
    assert min(seen["decoded by both"], seen["refused by both"]) > COMMANDS / 8
