"""A request for a repair. It is checked without Spark: a wrong argument must not wait until a JVM has started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from spark_mq.errors import OptionError, OutputExistsError
from spark_mq.indexer.output_folder import check_output
from spark_mq.io.location import Location
from spark_mq.job.output_committer import WORK_FOLDER
from spark_mq.job.unfinished_trees import UnfinishedTrees
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX
from spark_mq.store.log.splits import DEFAULT_SPLIT_SIZE
from spark_mq.verifier.verify_request import VerifyRequest


@dataclass(frozen=True)
class RepairRequest:
    """What to repair, and where to; see `spark_mq.repair` for the arguments.

    Attributes:
        output: The folder that gets the new files; None for the store itself.
        apply: Whether files are written; else the result is a plan.
        offsets: Whether offsets of consumers and delay levels after the end of a queue are corrected.
        assume_defaults: Whether index files are made with the broker's defaults if nothing tells their settings.
    """

    check: VerifyRequest
    output: Location | None = None
    apply: bool = False
    offsets: bool = False
    assume_defaults: bool = False

    @classmethod
    def of(
        cls,
        store: str,
        output: str | None = None,
        *,
        apply: bool = False,
        offsets: bool = False,
        broker_conf: str | None = None,
        scratch: str | None = None,
        split_size: int = DEFAULT_SPLIT_SIZE,
        assume_defaults: bool = False,
    ) -> Self:
        """The request with these arguments."""
        check = VerifyRequest.of(store, broker_conf, scratch, split_size)
        if output is None:
            if not check.store.is_local:
                raise OptionError(f"{check.store} is not on a local filesystem: give --output with another folder")
            return cls(check, None, apply, offsets, assume_defaults)
        folder = Location.resolve(output)
        check_output(folder, check.store, (CONSUME_QUEUE, INDEX))
        is_unfinished = not folder.is_local and UnfinishedTrees(folder, folder / WORK_FOLDER).names()
        if folder.entries() and not is_unfinished:
            raise OutputExistsError(f"--output {folder} is not empty: give a new folder")
        return cls(check, folder, apply, offsets, assume_defaults)

    @property
    def is_in_place(self) -> bool:
        """Whether files of the store itself are changed."""
        return self.apply and self.output is None
