"""The parser of SQL92 expressions: accepts and refuses what RocketMQ's does (`SelectorParser`@5.3.3).

From the loosest operator to the tightest: OR; AND; `=`, `<>`, IS [NOT] NULL; `<`, `<=`, `>`, `>=`, BETWEEN, IN,
CONTAINS, STARTSWITH, ENDSWITH; `+`, `-` and NOT. So `NOT a = 1` is `(NOT a) = 1`.

RocketMQ's parser stops after the first whole expression and one more token. So text after that is never read, even if
it has no tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from spark_mq.errors import FilterError, OptionError
from spark_mq.filters import expression as sql
from spark_mq.filters.java_number import INT_RANGE, LONG_RANGE, SPACE, compare_numbers
from spark_mq.format.broker_version import SQL92_SEARCH, BrokerVersion

END, STRING, FLOAT, DECIMAL, NAME, SYMBOL = "end", "string", "float", "decimal", "name", "symbol"
_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)+")
_TOKEN = re.compile(
    r"(?P<string>'[^']*(?:''[^']*)*')"
    r"|(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<decimal>0|[1-9][0-9]*[lL]?)"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<symbol><>|<=|>=|[=<>(),+-])"
)
_MOST_SHOWN = 200
_WORDS = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"))
_SEARCH_WORDS = frozenset(("CONTAINS", "STARTSWITH", "ENDSWITH"))
MAX_DEPTH = 64
"""Levels of parentheses and NOT, and operators in a chain such as `a = b = c`. RocketMQ allows some thousand."""
NEWEST = "5"
_ANY = 1000
"""A number that is larger than each part of a version."""
_NULL = sql.Constant(sql.Kind.NULL, None)
_COMPARISONS = frozenset(("<", "<=", ">", ">="))
_SEARCHES = frozenset(sql.Search)
_AFTER_OPERAND = frozenset((*_COMPARISONS, *_SEARCHES, "NOT", "BETWEEN", "IN"))


def parse_tags(text: str | None) -> frozenset[str] | None:
    """The tags that a subscription names; None for all messages.

    A text with blank tags only matches no message.
    """
    if not text or text == "*":
        return None
    pieces = text.split("||")
    if not any(pieces):
        raise refusal(text, 0, "it names no tag: give one, or several as 'a || b', or * for all messages")
    return frozenset(filter(None, (piece.strip(SPACE) for piece in pieces)))


@dataclass(frozen=True)
class Token:
    """A token. `kind` is the symbol, the keyword in upper case, or one of the constants of this module."""

    kind: str
    text: str
    start: int


def refusal(text: str, position: int, reason: str) -> FilterError:
    """The error of an expression; characters of `text` are counted from 0."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    place = f"column {column}" if line == 1 else f"line {line}, column {column}"
    shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    error = FilterError(f"filter {shown!r}: {place}: {reason}")
    error.position = position
    return error


@dataclass(frozen=True)
class ParsedFilter:
    """A parsed expression; RocketMQ does not read `ignored`, which is empty for almost every expression."""

    text: str
    condition: sql.Expression
    ignored: str

    @property
    def warning(self) -> str:
        """A sentence about `ignored`."""
        end = self.text.removesuffix(self.ignored).rstrip()
        return f"RocketMQ reads only {end!r} of the filter, and ignores {self.ignored!r}"


def parse_sql92(text: str, version: str = NEWEST) -> ParsedFilter:
    """A SQL92 expression, parsed as a broker of this version parses it.

    The version is one such as `4.9.7` or `5.1.3`; a part such as `5` means its newest release.
    """
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}", version):
        raise OptionError(f"version {version!r} is not a version of RocketMQ, such as 4.9.7 or 5.3.3")
    newest = [*map(int, version.split(".")), _ANY, _ANY][:3]
    return _Parser(text, has_search=SQL92_SEARCH.holds(BrokerVersion(*newest))).parse()


class _Parser:
    def __init__(self, text: str, *, has_search: bool) -> None:
        self._text = text
        self._words = _WORDS | _SEARCH_WORDS if has_search else _WORDS
        self._position = 0
        self._next: Token | None = None
        self._depth = 0

    def parse(self) -> ParsedFilter:
        if any("\ud800" <= char <= "\udfff" for char in self._text):
            raise refusal(self._text, 0, "the text is not valid Unicode")
        condition = self._condition(self._or(), 0)
        end = self._peek()
        return ParsedFilter(self._text, condition, self._text[end.start :])

    def _or(self) -> sql.Expression:
        return self._logic("OR", sql.Or, self._and)

    def _and(self) -> sql.Expression:
        return self._logic("AND", sql.And, self._equality)

    def _logic(self, word: str, kind: type[sql.And | sql.Or], operand: Callable[[], sql.Expression]) -> sql.Expression:
        start = self._peek().start
        left = operand()
        if self._peek().kind != word:
            return left
        operands = [self._condition(left, start)]
        while self._take_if(word):
            start = self._peek().start
            operands.append(self._condition(operand(), start))
        return kind(tuple(operands))

    def _equality(self) -> sql.Expression:
        left = self._comparison()
        links = 0
        while (token := self._peek()).kind in ("=", "<>", "IS"):
            links = self._limit(links + 1, token)
            self._take()
            if token.kind == "IS":
                is_not = self._take_if("NOT")
                self._expect("NULL")
                equal = sql.Equal(left, _NULL)
                left = sql.Not(equal) if is_not else equal
                continue
            right = self._comparison()
            self._check_equal(token, left, right)
            left = sql.Equal(left, right) if token.kind == "=" else sql.Not(sql.Equal(left, right))
        return left

    def _comparison(self) -> sql.Expression:
        left = self._unary()
        links = 0
        while (token := self._peek()).kind in _AFTER_OPERAND:
            links = self._limit(links + 1, token)
            self._take()
            if token.kind in _COMPARISONS:
                left = self._compare(token, token.kind, left, self._unary())
                continue
            is_negated = token.kind == "NOT"
            if is_negated:
                token = self._take()
            if token.kind == "BETWEEN":
                left = self._between(token, left, is_negated)
            elif token.kind == "IN":
                left = self._in(token, left, is_negated)
            elif token.kind in _SEARCHES:
                left = sql.Find(sql.Search(token.kind), left, self._string(), is_negated)
            else:
                raise self._unexpected(token)
        return left

    def _between(self, token: Token, value: sql.Expression, is_negated: bool) -> sql.Expression:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if is_negated:
            return sql.Or((self._compare(token, "<", value, low), self._compare(token, ">", value, high)))
        both = sql.And((self._compare(token, ">=", value, low), self._compare(token, "<=", value, high)))
        if isinstance(low, sql.Constant) and isinstance(high, sql.Constant) and low.is_literal and high.is_literal:
            assert isinstance(low.value, (int, float))
            assert isinstance(high.value, (int, float))
            if compare_numbers(high, low) < 0:
                raise refusal(self._text, token.start, f"BETWEEN {low.value} AND {high.value} has its ends reversed")
        return both

    def _in(self, token: Token, left: sql.Expression, is_negated: bool) -> sql.Expression:
        self._expect("(")
        values = [self._string()]
        while (end := self._take()).kind == ",":
            values.append(self._string())
        if end.kind != ")":
            raise self._unexpected(end)
        if not isinstance(left, sql.Property):
            raise refusal(self._text, token.start, "IN needs a property before it")
        return sql.In(left, tuple(values), is_negated)

    def _unary(self) -> sql.Expression:
        token = self._take()
        if token.kind not in ("+", "-", "NOT", "("):
            return self._primary(token)
        self._depth = self._limit(self._depth + 1, token)
        if token.kind == "(":
            inner = self._or()
            self._expect(")")
        elif token.kind == "+":
            inner = self._unary()
        elif token.kind == "-":
            inner = _negate(self._unary())
        else:
            start = self._peek().start
            inner = sql.Not(self._condition(self._unary(), start))
        self._depth -= 1
        return inner

    def _primary(self, token: Token) -> sql.Expression:
        if token.kind == STRING:
            return sql.Constant(sql.Kind.STRING, _unquote(token))
        if token.kind == DECIMAL:
            return self._decimal(token)
        if token.kind == FLOAT:
            value = float(token.text)
            if value == 0 or value == float("inf"):
                raise refusal(self._text, token.start, f"{token.text} is 0, or not within the range of a double")
            return sql.Constant(sql.Kind.DOUBLE, value)
        if token.kind in ("TRUE", "FALSE"):
            return sql.Constant(sql.Kind.BOOLEAN, token.kind == "TRUE")
        if token.kind == "NULL":
            return _NULL
        if token.kind == NAME:
            return sql.Property(token.text)
        raise self._unexpected(token)

    def _decimal(self, token: Token) -> sql.Constant:
        digits = token.text.rstrip("lL")
        if len(digits) > len(str(LONG_RANGE[1])) or int(digits) > LONG_RANGE[1]:
            raise refusal(self._text, token.start, f"{token.text} is larger than {LONG_RANGE[1]}")
        return sql.Constant(sql.Kind.INTEGER if int(digits) <= INT_RANGE[1] else sql.Kind.LONG, int(digits))

    def _compare(self, token: Token, operator: str, left: sql.Expression, right: sql.Expression) -> sql.Comparison:
        for side in (left, right):
            is_number = isinstance(side, sql.Constant) and side.kind in sql.NUMBERS
            if sql.is_boolean(side) or (isinstance(side, sql.Constant) and side.is_literal and not is_number):
                raise refusal(
                    self._text, token.start, f"{token.text.upper()} compares properties and numbers, nothing else"
                )
        return sql.Comparison(operator, left, right)

    def _check_equal(self, token: Token, left: sql.Expression, right: sql.Expression) -> None:
        literals = [side for side in (left, right) if isinstance(side, sql.Constant) and side.is_literal]
        if any(side.kind == sql.Kind.NULL for side in literals):
            raise refusal(self._text, token.start, f"{token.text} NULL is never true: write IS NULL or IS NOT NULL")
        if len(literals) == 2 and literals[0].kind == sql.Kind.BOOLEAN != literals[1].kind:
            raise refusal(self._text, token.start, "a boolean is compared with a constant of another type")

    def _condition(self, value: sql.Expression, start: int) -> sql.Expression:
        if sql.is_boolean(value):
            return value
        if isinstance(value, sql.Property):
            return sql.BooleanCast(value)
        raise refusal(self._text, start, "a condition is needed here, such as a = 1")

    def _string(self) -> str:
        token = self._take()
        if token.kind != STRING:
            raise refusal(self._text, token.start, f"a text in quotes is needed, not {_shown(token)}")
        return _unquote(token)

    def _expect(self, kind: str) -> None:
        if not self._take_if(kind):
            token = self._peek()
            raise refusal(self._text, token.start, f"{kind} is needed, not {_shown(token)}")

    def _peek(self) -> Token:
        """The next token, which stays the next one."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def _take(self) -> Token:
        token, self._next = self._peek(), None
        return token

    def _take_if(self, kind: str) -> bool:
        """Whether the next token is of a kind; then it is taken."""
        is_kind = self._peek().kind == kind
        if is_kind:
            self._next = None
        return is_kind

    def _read(self) -> Token:
        skipped = _SKIPPED.match(self._text, self._position)
        start = skipped.end() if skipped else self._position
        if start == len(self._text):
            return Token(END, "", start)
        match = _TOKEN.match(self._text, start)
        if match is None:
            raise refusal(self._text, start, f"{self._text[start]!r} starts no token")
        self._position = match.end()
        text, kind = match[0], str(match.lastgroup)
        if kind == SYMBOL:
            return Token(text, text, start)
        upper = text.upper()
        return Token(upper if kind == NAME and upper in self._words else kind, text, start)

    def _unexpected(self, token: Token) -> FilterError:
        return refusal(self._text, token.start, f"{_shown(token)} cannot be here")

    def _limit(self, depth: int, token: Token) -> int:
        if depth > MAX_DEPTH:
            raise refusal(self._text, token.start, f"the expression has more than {MAX_DEPTH} levels")
        return depth


def _negate(operand: sql.Expression) -> sql.Expression:
    """`-` before an operand: null if that is not a number (`UnaryExpression.createNegate`@5.3.3)."""
    if isinstance(operand, sql.Constant) and operand.kind in sql.NUMBERS:
        assert isinstance(operand.value, (int, float))
        return sql.Constant(operand.kind, -operand.value, is_literal=False)
    if isinstance(operand, (sql.Constant, sql.Property)):
        return sql.Constant(sql.Kind.NULL, None, is_literal=False)
    return operand if isinstance(operand, sql.Unknown) else sql.Unknown(operand)


def _unquote(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _shown(token: Token) -> str:
    return "the end of the text" if token.kind == END else token.text
