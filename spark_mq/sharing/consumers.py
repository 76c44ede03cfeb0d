"""The consumers of a group as a person names them: a number of them, or a file with a line for each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from spark_mq.errors import OptionError, StorageError

MOST_CONSUMERS = 100_000
"""More consumers than any group has."""


@dataclass(frozen=True)
class Consumers:
    """The consumers of a group.

    Attributes:
        rooms: The machine rooms of those that have one, by client id.
        queue_ids: The queues that consumers are configured to take, by client id.
        is_made_up: Whether only their number is known, so that the client ids are made up.
    """

    client_ids: tuple[str, ...]
    rooms: dict[str, str] = field(default_factory=dict)
    queue_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    is_made_up: bool = False


def parse_consumers(name: str, text: str, digits: int = 1) -> Consumers:
    """The consumers that an argument names.

    Args:
        name: What the text is given for; errors name it.
        text: A number, or the path of a text file: on each line a client id, then perhaps `room=R`, and
            `queues=0,1,2`. Lines that are empty or begin with # do not count.
        digits: The least number of digits in client ids that are made up. Clients sort their ids as text.
    """
    if text.isascii() and text.isdigit():
        if len(text) > 6 or not 0 < int(text) <= MOST_CONSUMERS:
            raise OptionError(f"{name}={text}: give from 1 to {MOST_CONSUMERS} consumers")
        width = max(digits, len(str(int(text))))
        return Consumers(tuple(f"consumer-{number:0{width}}" for number in range(1, int(text) + 1)), is_made_up=True)
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        what = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise StorageError(f"{name}={text} is neither a number nor a file that can be read: {what}") from error
    found = Consumers(())
    client_ids: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] in client_ids:
            raise OptionError(f"{text}, line {number}: client id {words[0]} is there twice")
        client_ids[words[0]] = None
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key == "room" and value:
                found.rooms[words[0]] = value
            elif key == "queues" and re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", value, re.ASCII):
                found.queue_ids[words[0]] = tuple(dict.fromkeys(map(int, value.split(","))))
            else:
                raise OptionError(f"{text}, line {number}: {word!r} is neither room=NAME nor queues=0,1,2")
    if not 0 < len(client_ids) <= MOST_CONSUMERS:
        raise OptionError(f"{text} names {len(client_ids)} consumers: give from 1 to {MOST_CONSUMERS}")
    return Consumers(tuple(client_ids), found.rooms, found.queue_ids)
