"""The offset of a stream over several stores: JSON with one offset for each store, in the order of their names.

| version | keys, in this order |
| --- | --- |
| 1, 2 | those of a stream over one store (`stream_offset`): the offset is that of the first store that is given |
| 3 | `version`, `stores`: a list of objects with `cluster`, `broker`, `store`, `offset`, and for a store that is new \
in the batch `begin` |

`offset` and `begin` have the keys of versions 1 and 2. The batch in which a store is new begins at its `begin`: the
offset before it does not have the store, and the batch may be repeated when the log starts elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from spark_mq.errors import OptionError
from spark_mq.source.stream_offset import StreamOffset
from spark_mq.store.config.named_store import STORE_COLUMNS

VERSION = 3

Names = tuple[str, str, str]
"""Cluster, broker and store."""
OneOffset = Mapping[str, Any]
"""The JSON values of `StreamOffset`."""


@dataclass(frozen=True)
class SeveralOffset:
    """The offsets of several stores.

    Attributes:
        offsets: The end of a batch, by the names of the store.
        begins: The begin of the batch, of stores that are new in it.

    """

    offsets: Mapping[Names, OneOffset]
    begins: Mapping[Names, OneOffset] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The offset for Spark. Equal offsets have the same text."""
        stores: list[dict[str, Any]] = []
        for names in sorted(self.offsets):
            begin = {"begin": dict(self.begins[names])} if names in self.begins else {}
            stores.append(
                {**dict(zip(STORE_COLUMNS, names, strict=True)), "offset": dict(self.offsets[names]), **begin}
            )
        return {"version": VERSION, "stores": stores}

    @classmethod
    def of_json(cls, values: Mapping[str, Any], first: Names) -> Self:
        """The offset of a checkpoint.

        Args:
            values: The JSON values.
            first: The names of the store to which an offset of versions 1 and 2 belongs.

        Raises:
            OptionError: No known version wrote the values.

        """
        if values.get("version") != VERSION:
            return cls({first: StreamOffset.of_json(values).to_json()})
        listed = values.get("stores")
        if not isinstance(listed, list):
            raise _not_ours(values)
        offsets: dict[Names, OneOffset] = {}
        begins: dict[Names, OneOffset] = {}
        for entry in listed:
            if not isinstance(entry, Mapping):
                raise _not_ours(values)
            cluster, broker, store = (entry.get(name) for name in STORE_COLUMNS)
            if not isinstance(cluster, str) or not isinstance(broker, str) or not isinstance(store, str):
                raise _not_ours(values)
            names = (cluster, broker, store)
            if names in offsets:
                raise _not_ours(values)
            for name, found in (("offset", offsets), ("begin", begins)):
                one = entry.get(name)
                if one is None and name == "begin":
                    continue
                if not isinstance(one, Mapping):
                    raise _not_ours(values)
                found[names] = StreamOffset.of_json(one).to_json()
        return cls(offsets, begins)


def _not_ours(values: Mapping[str, Any]) -> OptionError:
    return OptionError(f"the checkpoint's offset {dict(values)} was not written by this source: use its own checkpoint")
