"""`spark-mq verify STORE`: whether a store is sound, and if not, what exactly is wrong, and what to do."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import broker_conf_path
from spark_mq.cli.command import JOB, command
from spark_mq.cli.engine import LOCAL, find_engine, job_tasks
from spark_mq.cli.exit_status import COULD_NOT_RUN, SOUND, UNSOUND
from spark_mq.cli.output import say
from spark_mq.cli.output.metrics import Metric, write_metrics
from spark_mq.cli.output.terminal import print_answer, print_report
from spark_mq.cli.output.value_text import local_time_of
from spark_mq.errors import OptionError, SparkMqError, similar_names
from spark_mq.format.amounts import size_text
from spark_mq.job.task_errors import with_remedy
from spark_mq.job.tasks import ENGINES
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.verifier.codes import CODES, Severity

if TYPE_CHECKING:
    from spark_mq.verifier.check import VerifyRequest
    from spark_mq.verifier.result import VerifyReport

KERNELS = (
    "frames", "big_endian", "dispatch", "queue_table", "index_keys", "crc", "properties", "fields", "columns",
    "index_put", "recovery",
)  # fmt: skip
"""The modules of the kernels that a check, or a repair, calls, in the order in which it needs them."""


_NOT_SEEN = (
    "bytes that changed without a trace in a file's size, times and inode, and bytes in the middle of what was sound "
    "of a file that a broker still writes"
)
"""What a check with a journal cannot see."""


@command(
    "verify",
    """
    [STORE]             the broker's store directory (storePathRootDir)
    --quick             do not read the whole log: check names, sizes, headers, both ends of files,
                        config/
    --report FILE       write all findings to FILE: JSON lines, or Parquet if it ends with .parquet
    --sample PART       a quick check, and the records of a part of the log: N/T, such as 3/30 for the third of 30
                        parts; X%% or a size, such as 5%% or 20g, for so much of it at random
    --since-last FILE   read only what is new or has changed since the last sound check, which FILE describes; the first
                        check reads everything, and each sound check rewrites FILE
    --tiered-storage DIR  also check tiered storage, the broker's tieredStoreFilePath; always all of it
    --metrics FILE
    --explain CODE      explain a code of a finding; without STORE
    --broker-conf FILE  the broker's settings file, for file sizes, slots and entries, and delay levels
    --scratch DIR
    --split-size SIZE
    """,
    JOB,
    example="/data/store --report findings.parquet",
    description="""
    Check everything in a store against its commit log: records, segments, queues, index, config/.
    """,
    epilog="""
    A store that is checked is never changed, and its broker can run: what is newer than the end of the log at the start
    is left out. --explain lists all codes if CODE is `all`.
    """,
    split_size="128m",
)
def verify(arguments: argparse.Namespace) -> int:
    """Check the store, and print the report; returns the exit status."""
    try:
        return _explain(arguments.explain) if arguments.explain is not None else _verify(arguments)
    except (SparkMqError, OSError) as error:
        say(with_remedy(str(error)) if isinstance(error, OSError) else str(error))
        return COULD_NOT_RUN


def _explain(name: str) -> int:
    if name == "all":
        for each, code in CODES.items():
            print(f"{code.severity:8}{each:24}{code.meaning}")
    elif name.upper() in CODES:
        code = CODES[name.upper()]
        rows = (f"  {title:16}{text}" for title, text in code.rows())
        print_report("\n".join([f"{name.upper()} ({code.severity})", *rows]))
    else:
        similar = similar_names(name.upper(), set(CODES))
        hint = f"similar codes: {', '.join(similar)}" if similar else "`--explain all` lists the codes"
        raise OptionError(f"--explain {name!r}: there is no such code; {hint}")
    return SOUND


def _verify(arguments: argparse.Namespace) -> int:
    if arguments.store is None:
        raise OptionError("verify needs a STORE, or --explain CODE")
    if sum((arguments.quick, arguments.sample is not None, arguments.since_last is not None)) > 1:
        raise OptionError("--quick, --sample and --since-last are different checks: give one of them")
    if arguments.tiered_storage is not None and (arguments.quick or arguments.sample is not None):
        raise OptionError("--tiered-storage is read whole: give it without --quick and --sample")
    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    if arguments.quick:
        from spark_mq.verifier.quick import quick_check

        report, found = quick_check(arguments.store, BrokerConf.of(conf))
        if arguments.report is not None:
            from spark_mq.verifier.result import write_findings

            write_findings(arguments.report, found.to_batches())
    elif arguments.sample is not None:
        report = _verify_sample(arguments, conf)
    else:
        report = _verify_log(arguments, conf)
    write_metrics(arguments.metrics, metrics_of(report))
    print_answer(arguments.json, report.to_json, lambda: report_lines(report, arguments.report))
    return SOUND if report.is_sound else UNSOUND


def metrics_of(report: VerifyReport) -> Iterator[Metric]:
    """The figures of a report; label `check` says how much was read."""
    kind = (
        "sample"
        if report.sampled_bytes is not None
        else "quick"
        if report.is_quick
        else "since_last"
        if report.sound_bytes
        else "whole"
    )

    def metric(name: str, meaning: str, value: float | None, **labels: str) -> Metric:
        return Metric(f"verify_{name}", meaning, value, {"store": report.store, "check": kind, **labels})

    yield metric("sound", "whether the store is sound: 1 or 0", report.is_sound)
    for severity in Severity:
        yield metric("findings", "findings of the check", report.count(severity), severity=severity)
    for name, code in report.codes():
        meaning = "findings of the check with a code"
        yield metric("code_findings", meaning, report.counts[name], code=name, severity=code.severity)
    yield metric("log_bytes", "bytes of the log that were checked", report.log_bytes)
    yield metric("sound_bytes", "bytes of the log that were sound before, and were not read again", report.sound_bytes)
    yield metric("messages", "messages that were read", report.messages)
    yield metric("seconds", "duration of the check", report.seconds)
    yield metric("time_seconds", "when the check ended, in seconds since the epoch", round(time.time()))


def _verify_log(arguments: argparse.Namespace, conf: str | None) -> VerifyReport:
    from spark_mq.verifier.check import VerifyRequest

    # A path that is not a store is found before a JVM starts.
    request = VerifyRequest.of(
        arguments.store, conf, arguments.scratch, arguments.split_size, arguments.since_last, arguments.tiered_storage
    )
    engine = _engine(arguments, request, arguments.tiered_storage)
    with job_tasks("verify", arguments, engine, KERNELS) as tasks:
        from spark_mq.verifier.verify import verify_with

        result = verify_with(tasks, request)
        try:
            if arguments.report is not None:
                result.write(arguments.report)
            return result.report
        finally:
            result.close()


def _engine(arguments: argparse.Namespace, request: VerifyRequest, *places: str | None) -> str:
    """Where the check runs: an empty log is checked in this process, for which Spark need not start."""
    from spark_mq.store.log.commit_log import CommitLog

    engine = find_engine(arguments, [arguments.store, arguments.scratch, *places])
    return engine if engine == LOCAL or CommitLog.open(request.store).segments else LOCAL


def _verify_sample(arguments: argparse.Namespace, conf: str | None) -> VerifyReport:
    from spark_mq.io.publish import discard_folder
    from spark_mq.job.progress import Progress
    from spark_mq.verifier.check import VerifyRequest
    from spark_mq.verifier.result import write_findings
    from spark_mq.verifier.verify import LogSample, check_sample, task_runner, work_folder

    sample, started = LogSample.parse(arguments.sample), time.monotonic()
    request = VerifyRequest.of(arguments.store, conf, arguments.scratch, arguments.split_size)
    engine = _engine(arguments, request)
    with job_tasks("verify", arguments, engine, KERNELS) as tasks:
        work = work_folder(request.scratch)
        try:
            runner = task_runner(tasks, request, work, Progress(work, tasks.on_progress))
            report, found = check_sample(request, sample, work, runner)
        finally:
            discard_folder(work)
    if arguments.report is not None:
        write_findings(arguments.report, found)
    return replace(report, seconds=round(time.monotonic() - started, 3))


def report_lines(report: VerifyReport, report_file: str | None = None) -> Iterator[str]:
    """The lines of a report: counts, then each code with its first findings, and the verdict in the last line."""
    yield f"check of {report.store}"
    if report.is_quick:
        of_sample = "not read"
        if report.sampled_bytes is not None:
            of_sample = f"of which {report.messages:,} messages in {size_text(report.sampled_bytes)} were read"
        yield f"  log             {size_text(report.log_bytes)}, {of_sample}"
        yield f"  queues          {report.queues:,}, of which both ends were checked"
        yield f"  index           {report.index_files:,} files, of which both ends were checked"
    else:
        yield f"  log             {report.messages:,} messages in {size_text(report.log_bytes)}"
        yield f"  queues          {report.queues:,} with {report.units:,} messages"
        yield f"  index           {report.index_files:,} files; the log has {report.index_entries:,} entries"
    if report.tiered_queues is not None:
        yield f"  tiered storage  {report.tiered_queues:,} queues, and their index"
    if report.sound_bytes and report.checked_timestamp is not None and report.whole_timestamp is not None:
        yield f"  not read        {size_text(report.sound_bytes)} of the log, and the queues and index of its messages,"
        yield f"    sound         at {local_time_of(report.checked_timestamp)}; everything was read at"
        yield f"                  {local_time_of(report.whole_timestamp)}"
        yield f"    not seen      {_NOT_SEEN}"
    if report.whole_reason:
        yield f"  read again      {report.whole_reason}"
    yield f"  seconds         {report.seconds:.1f}{'' if report.is_quick else f' {ENGINES[report.engine]}'}"
    for name, code in report.codes():
        count, shown = report.counts[name], report.first.get(name, [])
        yield ""
        yield f"{code.severity} {name}: {count:,}"
        yield f"  what            {code.meaning}"
        for finding in shown:
            yield f"  where           {finding.place}"
            if finding.expected is not None:
                yield f"    expected      {finding.expected}"
            if finding.found is not None:
                yield f"    found         {finding.found}"
        if count > len(shown):
            where = f"{report_file} has all of them" if report_file else "--report FILE writes all of them"
            yield f"  more            {count - len(shown):,}; {where}"
        yield f"  do              {code.remedy}"
    if report.counts:
        yield ""
        yield "`spark-mq verify --explain CODE` tells how a finding comes about, and what a broker does with it"
    yield f"verdict: {report.verdict}"
