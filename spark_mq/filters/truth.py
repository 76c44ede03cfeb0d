"""What an expression says about a message: one of four answers, and the tables that combine them.

RocketMQ's expressions have SQL's three values. The fourth one, an error, is an exception in Java: the message does not
match, whatever the rest of the expression says. A table has an answer for each answer of the left side (rows) and of
the right side (columns).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum


class Truth(IntEnum):
    """The answer of an expression. Only TRUE is a match."""

    FALSE = 0
    TRUE = 1
    NULL = 2
    ERROR = 3


FALSE, TRUE, NULL, ERROR = Truth
Table1 = tuple[Truth, ...]
Table2 = tuple[Truth, ...]


def table_of_one(rule: Callable[[Truth], Truth]) -> Table1:
    """The table of a rule for one answer."""
    return tuple(rule(value) for value in Truth)


def table_of_two(rule: Callable[[Truth, Truth], Truth]) -> Table2:
    """The table of a rule for two answers, row by row."""
    return tuple(rule(left, right) for left in Truth for right in Truth)


def _logic(decisive: Truth, other: Truth) -> Callable[[Truth, Truth], Truth]:
    """A rule whose right side is not evaluated after `decisive` or an error on the left."""

    def rule(left: Truth, right: Truth) -> Truth:
        decided = next((side for side in (left, right) if side in (decisive, ERROR)), other)
        return NULL if decided == other and NULL in (left, right) else decided

    return rule


def _equal(left: Truth, right: Truth) -> Truth:
    if ERROR in (left, right):
        return ERROR
    if NULL in (left, right):
        return TRUE if left == right else NULL if left == NULL else FALSE
    return Truth(left == right)


def _equal_text(left: Truth, right: Truth) -> Truth:
    if left == ERROR:
        return ERROR
    if right == NULL:
        return TRUE if left == NULL else FALSE
    return NULL if left == NULL else ERROR


AND = table_of_two(_logic(FALSE, TRUE))
"""`LogicExpression.createAND`@5.3.3."""
OR = table_of_two(_logic(TRUE, FALSE))
"""`LogicExpression.createOR`@5.3.3."""
NOT = table_of_one(lambda value: {FALSE: TRUE, TRUE: FALSE}.get(value, value))
"""`UnaryExpression.createNOT`@5.3.3."""
EQUAL = table_of_two(_equal)
"""`=` of two booleans: only the left side makes it unknown (`ComparisonExpression.doCreateEqual`@5.3.3)."""
EQUAL_TEXT = table_of_two(_equal_text)
"""`=` of a boolean and, on the right, a text (NULL if it is missing, else any other answer): Java cannot cast it."""
NULL_ONLY = table_of_one(lambda value: ERROR if value == ERROR else NULL)
"""Unknown, after an evaluation that may fail."""
FALSE_ONLY = table_of_one(lambda value: ERROR if value == ERROR else FALSE)
"""FALSE, after an evaluation that may fail."""
FALSE_IF_KNOWN = table_of_one(lambda value: FALSE if value == TRUE else value)
"""FALSE for a value, whatever it is."""
FALSE_IF_NULL = table_of_one(lambda value: FALSE if value == NULL else value)
"""FALSE for an unknown value."""
NULL_OR_RIGHT = table_of_two(lambda left, right: ERROR if left == ERROR else NULL if left == NULL else NULL_ONLY[right])
"""Unknown: the right side is evaluated only if the left one has a value."""
