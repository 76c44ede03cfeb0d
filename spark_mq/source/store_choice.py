"""The stores of a read: one path, several paths, a pattern, or a file of stores; and the options for each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from spark_mq.errors import OptionError, similar
from spark_mq.io.s3 import OPTIONS as S3_OPTIONS
from spark_mq.io.s3 import is_s3, redacted, with_settings
from spark_mq.source.options import (
    NO_PATH,
    OPTION_NAMES,
    SELECTION,
    STREAM_NAMES,
    STREAM_ONLY,
    names_of,
    parse_boolean,
    parse_options,
    parse_table,
)
from spark_mq.source.predicate import decode_conditions, matches_names
from spark_mq.store.config.named_stores import (
    STORE_COLUMNS,
    NamedStore,
    check_stores,
    is_pattern,
    load_stores,
    matching_stores,
)

_PATH, _PATHS, _STORES, _SKIP = "path", *SELECTION
_CONF, _CONDITIONS = "brokerConf", "conditions"
_NOT_OF_ONE_STORE = (*SELECTION, _PATH, "table", _CONDITIONS, *STREAM_ONLY)
"""Options that the entry of a store in a file of stores cannot have."""
_KNOWN = {name.lower(): name for name in OPTION_NAMES}


@dataclass(frozen=True)
class StoreChoice:
    """The options of a read that say which stores it has, and the other options.

    Their names are those of `OPTION_NAMES`, whatever the case in which they were given. Unknown ones stay.
    """

    selection: Mapping[str, str]
    others: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """The choice that the options make, as Spark passes them."""
        named = {_KNOWN.get(key.lower(), key): value for key, value in options.items()}
        selection = {name: named.pop(name) for name in (_PATH, *SELECTION) if name in named}
        given = [name for name in (_PATH, _PATHS, _STORES) if selection.get(name)]
        if len(given) > 1:
            what = "load with a path" if _STORES in given else "option path"
            raise OptionError(f"{what} and option {given[1]} both select stores: give one of them")
        choice = cls(selection, named)
        if _SKIP in selection:
            parse_boolean(_SKIP, selection)
            if not choice.is_of_several:
                raise OptionError(f"option {_SKIP} has no effect on one store: give several paths, or option {_STORES}")
        return choice

    @property
    def is_of_several(self) -> bool:
        """Whether the options can select several stores, whatever the number of those that there are."""
        given = self.selection.get
        return bool(given(_PATHS) or given(_STORES) or is_pattern(given(_PATH, "")))

    @property
    def skips_unreadable(self) -> bool:
        """Whether a store that cannot be read is left out with a warning; else it is an error."""
        return parse_boolean(_SKIP, self.selection)

    def table(self) -> str:
        """The table of the read; no store is looked for. Raises the errors of `parse_table`."""
        if self.is_of_several:
            others = {name: value for name, value in self.others.items() if name not in S3_OPTIONS}
            return parse_table({**others, _PATH: "several stores"})
        return parse_table({**self.others, _PATH: self.selection.get(_PATH, "")})

    def stores(self) -> list[NamedStore]:
        """The stores, in the order in which they are given; those of a pattern are sorted by path.

        A store is left out if none of its rows can match, because of a condition on its names.
        """
        if self.selection.get(_STORES):
            return self._matching(load_stores(self.selection[_STORES]))
        paths = self._paths()
        # The settings of one broker say nothing of the names of the others.
        conf = self.others.get(_CONF) if len(paths) == 1 else None
        return self._matching(check_stores(NamedStore.of(path, conf) for path in paths))

    def _paths(self) -> list[str]:
        text = self.selection.get(_PATHS)
        given: Any = [self.selection.get(_PATH, "")]
        reason = ""
        if text:
            try:
                given = json.loads(text)
            except ValueError as error:
                given, reason = [None], f": {error}"
            if not isinstance(given, list) or not all(isinstance(path, str) for path in given):
                raise OptionError(f"option {_PATHS}={redacted(text)!r} is not a JSON list of paths{reason}")
        if not given or not all(given):
            raise OptionError(NO_PATH)
        return [
            one
            for path in given
            for one in (matching_stores(self._with_settings(path)) if is_pattern(path) else [path])
        ]

    def _with_settings(self, pattern: str) -> str:
        """The pattern with the settings that are needed to look for the paths that it matches."""
        given = {name: value for name, value in self.others.items() if name in S3_OPTIONS}
        return with_settings(pattern, given) if is_s3(pattern) else pattern

    def _matching(self, stores: list[NamedStore]) -> list[NamedStore]:
        conditions = decode_conditions(self.others.get(_CONDITIONS) or "[]")
        return [
            store
            for store in stores
            if matches_names(conditions, {column: getattr(store, column) for column in STORE_COLUMNS})
        ]

    def each(self, is_stream: bool = False) -> list[tuple[NamedStore, dict[str, str]]]:
        """The stores, each with the options of its read."""
        stores = self.stores()
        any_is_s3 = any(is_s3(store.path) for store in stores)
        names = STREAM_NAMES if is_stream else names_of(self.table())
        return [(store, self._options_of(store, names, any_is_s3)) for store in stores]

    def _options_of(self, store: NamedStore, names: Sequence[str], any_is_s3: bool) -> dict[str, str]:
        """The options of a read of one store; those of its own that the table or stream does not have are left out."""
        known = {key: name for key, name in _KNOWN.items() if name not in _NOT_OF_ONE_STORE}
        own = {} if store.broker_conf is None else {_CONF: store.broker_conf}
        for name, value in store.options.items():
            if name.lower() not in known:
                raise OptionError(
                    f"store {store}: option {name} is not an option of one store{similar(name, known.values())}"
                )
            own[known[name.lower()]] = value
        own = {name: value for name, value in own.items() if name in names or name in S3_OPTIONS}
        left_out = S3_OPTIONS if any_is_s3 and not is_s3(store.path) else ()
        options = {name: value for name, value in self.others.items() if name not in left_out}
        return {**options, **own, _PATH: store.path}


def check_options(options: Mapping[str, str]) -> None:
    """Check the options of a batch read of one or of several stores; no store is looked for."""
    choice = StoreChoice.of(options)
    if choice.is_of_several:
        choice.table()
    else:
        parse_options(options)
