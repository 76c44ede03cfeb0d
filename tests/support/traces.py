"""Bodies of trace messages, and events beside those of the Java decoder."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

from spark_mq.lifecycle.traces import NONE, RETURN_TYPES, TEXTS, TraceEvent

_TIME = "1795248093336"
VALID = (
    f"Pub\x01{_TIME}\x01r\x01PID\x01orders\x01K1\x01paid\x01a b\x01h:1\x01120\x0112\x010\x01OID\x01true\x01c:2",
    f"Pub\x01{_TIME}\x01r\x01PID\x01orders\x01K1\x01null\x01\x01h:1\x010\x01-3\x013\x01OID\x01false",
    f"Pub\x01{_TIME}\x01r\x01PID\x01orders\x01K1\x01paid\x01k\x01h:1\x011\x012\x014\x01TRUE",
    f"Pub\x01{_TIME}\x01r\x01PID\x01orders\x01K1\x01paid\x01k\x01h:1\x011\x012\x011",
    f"SubBefore\x01{_TIME}\x01null\x01GID\x01REQ\x01K1\x012\x01a  b ",
    "SubAfter\x01REQ\x01K1\x015\x01true\x01k",
    "SubAfter\x01REQ\x01K1\x015\x01false\x01k\x014",
    f"SubAfter\x01REQ\x01K1\x015\x01false\x01k\x017\x01{_TIME}",
    f"SubAfter\x01REQ\x01K1\x015\x01true\x01订单\x010\x01{_TIME}\x01GID",
    f"EndTransaction\x01{_TIME}\x01r\x01PID\x01orders\x01K1\x01t\x01k\x01h:1\x012\x01TX\x01COMMIT_MESSAGE\x01false",
    f"EndTransaction\x01{_TIME}\x01r\x01PID\x01orders\x01K1\x01t\x01k\x01h:1\x012\x01TX\x01UNKNOW\x01true",
    f"Recall\x01{_TIME}\x01r\x01PID\x01orders\x01K1\x01true",
)
"""Events of all types, with and without the fields that older clients do not write."""

_WRONG = ("", "x", "+7", "-1", "007", "5", "2147483648", "9223372036854775807", "9223372036854775808", "Pub", " 1")


def hostile_bodies(seed: int, count: int) -> list[bytes]:
    """Bodies of a few events, some with fields that are changed, missing or too many."""
    chance = random.Random(seed)
    bodies = []
    for _ in range(count):
        events = []
        for _ in range(chance.randint(0, 3)):
            fields = chance.choice(VALID).split("\x01")
            for _ in range(chance.choice((0, 0, 1, 2))):
                at = chance.randrange(len(fields))
                change = chance.choice(("cut", "set", "set", "insert"))
                if change == "cut":
                    fields = fields[: max(at, 1)]
                elif change == "set":
                    fields[at] = chance.choice(_WRONG)
                else:
                    fields.insert(at, chance.choice(_WRONG))
            events.append("\x01".join(fields))
        body = "\x02".join(events) + chance.choice(("", "\x02", "\x02\x02", "\x02\x01\x02"))
        bodies.append(body.encode() + chance.choice((b"", b"", b"\xff\xc3")))
    return bodies


def as_java(event: TraceEvent, said: dict[str, Any]) -> bool:
    """Asserts that an event has the values of Java's; what the event does not say has a default in Java."""
    for name, value in asdict(event).items():
        if name == "problem" or (value is None and name not in TEXTS):
            continue
        java = said[name]
        if name == "return_type":
            java = RETURN_TYPES[java] if 0 <= java < len(RETURN_TYPES) else str(java)
        if value is None:
            assert java in ("", NONE, None) or name in ("store_host", "client_host", "request_id"), (name, java)
        else:
            assert value == java, name
    return True
