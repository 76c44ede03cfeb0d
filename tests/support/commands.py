"""Random commands of the remoting protocol, by a seed, and frames with changed bytes."""

from __future__ import annotations

import random
from collections.abc import Collection

from spark_mq.remoting.codes import LanguageCode
from spark_mq.remoting.command import RemotingCommand, SerializeType

_ALPHABET = "abcXYZ019 _-.:,/\\\"'{}[]\x00\x07\n\t\x7f\x85\u2028éßЖ漢\ufeff\uffff😀"
_NAMES = ("topic", "queueId", "consumerGroup", "offset", "a", "n", "")


def random_command(choice: random.Random, languages: Collection[LanguageCode] = tuple(LanguageCode)) -> RemotingCommand:
    """Any command that its kind of header can have."""
    kind = choice.choice(list(SerializeType))
    fields = {
        choice.choice((*_NAMES, random_text(choice))): choice.choice(
            (random_text(choice), str(_number(choice, 64)), "")
        )
        for _ in range(choice.randrange(6))
    }
    return RemotingCommand(
        _number(choice, 32 if kind == SerializeType.JSON else 16),
        fields,
        choice.randbytes(choice.choice((0, 1, 30))),
        _number(choice, 32),
        _number(choice, 32),
        choice.choice((None, random_text(choice) or None)),
        choice.choice(sorted(languages)),
        _number(choice, 32 if kind == SerializeType.JSON else 16),
        kind,
    )


def random_text(choice: random.Random) -> str:
    """A text that is short in most cases, with characters of any kind."""
    return "".join(choice.choices(_ALPHABET, k=choice.choice((0, 1, 3, 20))))


def changed(choice: random.Random, frame: bytes) -> bytes:
    """A frame of which one byte, some bytes, or the end changed; its length states what it has."""
    data = bytearray(frame[4:])
    match choice.randrange(4):
        case 0:
            data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
        case 1:
            for _ in range(choice.randrange(1, 5)):
                data[choice.randrange(len(data))] = choice.choice((0, 0xFF, 0x7F, 0x80, choice.randrange(256)))
        case 2:
            del data[choice.randrange(4, len(data)) :]
        case _:
            position = choice.randrange(4, len(data))
            data[position:position] = choice.randbytes(choice.randrange(1, 9))
    return len(data).to_bytes(4, "big") + bytes(data)


def _number(choice: random.Random, bits: int) -> int:
    limit = 1 << (bits - 1)
    return choice.choice((0, 1, 11, -1, limit - 1, -limit, choice.randrange(-limit, limit)))
