"""A quick check, and the records of a sample of the log: what a short check each night can read of a large store."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import pyarrow as pa

from spark_mq.errors import OptionError
from spark_mq.indexer.rebuild_plan import DispatchSettings, DispatchTargets
from spark_mq.io.location import Location
from spark_mq.job.tasks import TaskRunner
from spark_mq.source.options import parse_size
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import CommitLog, SegmentSource, Split, list_offset_range
from spark_mq.verifier.log_check import CheckedSplit, check_split
from spark_mq.verifier.quick import quick_check
from spark_mq.verifier.result import SHOWN, Summary, VerifyReport, read_findings
from spark_mq.verifier.verify_request import VerifyRequest

_PART = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
_LEAST_SPLIT = 64 << 10
_SPLITS_OF_PART = 4
_SPLITS = 256


@dataclass(frozen=True)
class LogSample:
    """A part of the log: the `number`-th of `parts` parts, or, chosen at random, a `share` of it or a number of bytes.

    The splits of the log belong to the parts in turn, so `parts` checks read all of it while it does not grow.
    """

    number: int = 0
    parts: int = 0
    share: float = 0.0
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """The sample that N/T, X% or a size names."""
        part, share = _PART.fullmatch(text.strip()), _SHARE.fullmatch(text.strip())
        if part is not None and 1 <= int(part[1]) <= int(part[2]):
            return cls(number=int(part[1]), parts=int(part[2]))
        if share is not None and 0 < float(share[1]) <= 100:
            return cls(share=float(share[1]) / 100)
        try:
            return cls(size=parse_size("--sample", text))
        except OptionError as error:
            raise OptionError(
                f"--sample {text!r}: give N/T such as 3/30, X% such as 5%, or a size such as 20g"
            ) from error

    def splits(self, store: Location, split_size: int) -> list[Split]:
        """The splits of the sample, in the order of the log; at least as many bytes as asked for, if there are."""
        segments, end = CommitLog.open(store).segments, LiveEndFinder(store).find_end_now().offset
        if not segments or end <= segments[0].base:
            return []
        log = list_offset_range(store, segments[0].base, end)
        small = (log.end - log.start) // max(self.parts * _SPLITS_OF_PART, _SPLITS)
        splits = log.splits(max(min(split_size, small), _LEAST_SPLIT))
        if self.parts:
            return splits[self.number - 1 :: self.parts]
        wanted = self.size or self.share * sum(split.stop - split.start for split in splits)
        chosen: list[int] = []
        for number in random.sample(range(len(splits)), len(splits)):
            if wanted > 0:
                chosen.append(number)
                wanted -= splits[number].stop - splits[number].start
        return [splits[number] for number in sorted(chosen)]


def check_sample(
    request: VerifyRequest, sample: LogSample, work: Location, runner: TaskRunner
) -> tuple[VerifyReport, list[pa.RecordBatch]]:
    """The report of a quick check and of the records of a sample, and all findings; `work` is an empty folder."""
    report, found = quick_check(str(request.store), request.conf)
    splits = sample.splits(request.store, request.split_size)
    size = sum(split.stop - split.start for split in splits)
    settings = DispatchSettings(0, request.conf.message_delay_level)
    targets = DispatchTargets(work, settings, has_queues=False, has_index=False)
    checked = runner.each("check sample", "splits", splits, partial(_check, targets=targets, found=work), size)
    summary = Summary.of(one.summary for one in checked)
    # Both checks can see the same damage.
    codes = {*report.counts, *summary.counts}
    counts = {code: max(report.counts.get(code, 0), summary.counts.get(code, 0)) for code in codes}
    first = {code: [*report.first.get(code, ()), *summary.first.get(code, ())][:SHOWN] for code in counts}
    messages = sum(one.row.messages for one in checked)
    of_records = list(read_findings(summary.files))
    engine = runner.tasks.engine
    sampled = replace(report, counts=counts, first=first, messages=messages, sampled_bytes=size, engine=engine)
    return sampled, [*found.to_batches(), *of_records]


def _check(split: Split, targets: DispatchTargets, found: Location) -> CheckedSplit:
    """The check of the records that start in a split; where the first one starts is found from the bytes before it."""
    from spark_mq.store.log.split_reader import find_start

    with SegmentSource(split.segment) as source:
        start = split.start if split.start == 0 else find_start(source, split)
    return check_split(replace(split, start=min(start, split.stop)), targets, exact=True, found=found)
