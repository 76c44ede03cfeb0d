"""How many columns of a terminal a text takes: East Asian wide characters take two, combining marks none."""

from __future__ import annotations

from unicodedata import category, east_asian_width

ELLIPSIS = "…"
"""Stands for the rest of a text that was cut."""

_JAMO_VOWELS_AND_FINALS = range(0x1160, 0x1200)
"""Parts of a Hangul syllable that are drawn into the character before them."""


def display_width(text: str) -> int:
    """The number of terminal columns that a text without control characters takes."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def cut(text: str, width: int) -> str:
    """The text, or if it is wider than `width` columns, its beginning and an ellipsis in at most `width` columns."""
    if len(text) <= width // 2 or display_width(text) <= width:
        return text
    taken, kept = 0, []
    for character in text:
        taken += _character_width(character)
        if taken > width - 1:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def pad(text: str, width: int, to_the_right: bool = False) -> str:
    """The text with spaces up to `width` columns: after it, or before it if the text goes to the right."""
    spaces = " " * (width - display_width(text))
    return spaces + text if to_the_right else text + spaces


def _character_width(character: str) -> int:
    if character.isascii():
        return 1
    if east_asian_width(character) in ("W", "F"):
        return 2
    if category(character) in ("Mn", "Me") or ord(character) in _JAMO_VOWELS_AND_FINALS:
        return 0
    return 1
