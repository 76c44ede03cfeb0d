"""The extension units of one queue, by the addresses in its consume queue (`ConsumeQueueExt`@5.3.3 and @4.9.7)."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import Units
from spark_mq.format.consume_queue_ext import (
    HEADER_SIZE,
    MAX_ADDRESS,
    MAX_UNIT_SIZE,
    ExtUnit,
    ExtUnits,
    is_address,
    offset_of,
    offsets_of,
    parse_unit,
    parse_units,
)
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import CONSUME_QUEUE_EXT, MAPPED_FILE_NAME


class ConsumeQueueExt:
    """The extension units of one queue. The folder is listed once, when the first unit is asked for."""

    def __init__(self, folder: Location, files: FileReaders) -> None:
        """The extension in `folder`, which need not exist."""
        self.folder = folder
        self._readers = files
        self._listed: list[tuple[int, int, Location]] | None = None

    @classmethod
    def beside(cls, queue_folder: Location, files: FileReaders) -> ConsumeQueueExt:
        """The extension of the queue whose files are in `queue_folder`, `consumequeue/TOPIC/QUEUE ID`."""
        topic = queue_folder.parent
        store = topic.parent.parent
        return cls(store / CONSUME_QUEUE_EXT / topic.name / queue_folder.name, files)

    @property
    def _files(self) -> list[tuple[int, int, Location]]:
        """The first offset, the size and the place of each file, by offset."""
        if self._listed is None:
            named = [info for info in self.folder.entries() if MAPPED_FILE_NAME.fullmatch(info.base_name)]
            self._listed = sorted(
                (int(info.base_name), int(info.size or 0), self.folder / info.base_name) for info in named
            )
        return self._listed

    def unit(self, address: int) -> ExtUnit | None:
        """The unit at an address; None if it is not an address, or no whole unit is there."""
        if not is_address(address):
            return None
        offset = offset_of(address)
        index = bisect_right(self._files, offset, key=lambda file: file[0]) - 1
        if index < 0 or offset >= self._files[index][0] + self._files[index][1]:
            return None
        first, size, location = self._files[index]
        return parse_unit(self._readers.read(location, offset - first, min(MAX_UNIT_SIZE, size - (offset - first))))

    def resolved(self, units: Units) -> Units:
        """Consume queue units whose addresses are replaced by the tags codes to which they lead.

        An address that leads to no whole unit stays.
        """
        codes = units["tags_code"].astype(np.int64)
        if not (codes <= MAX_ADDRESS).any():
            return units
        found = self.units(codes)
        result = units.copy()
        result["tags_code"][found.is_found] = found.tags_code[found.is_found]
        return result

    def units(self, tags_codes: Int64s) -> ExtUnits:
        """The units to which tags codes lead; a tags code that is not an address leads to none."""
        count = tags_codes.size
        found = ExtUnits(
            np.zeros(count, np.bool_), np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, b"", object)
        )
        asked = np.flatnonzero(tags_codes <= MAX_ADDRESS)
        if not asked.size:
            return found
        offsets = offsets_of(tags_codes[asked])
        for first, size, location in self._files:
            is_here = (offsets >= first) & (offsets - first < size)
            if not is_here.any():
                continue
            # Only the part of the file to which the addresses lead.
            places = offsets[is_here] - first
            start = int(places.min())
            length = min(int(places.max()) + HEADER_SIZE + MAX_UNIT_SIZE, size) - start
            data = np.frombuffer(self._readers.read(location, start, length), np.uint8)
            units, which = parse_units(data, places - start), asked[is_here]
            found.is_found[which] = units.is_found
            found.tags_code[which] = units.tags_code
            found.store_timestamp[which] = units.store_timestamp
            found.bit_map[which] = units.bit_map
        return found
