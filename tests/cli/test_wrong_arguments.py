"""What a command cannot do is one line with its exit status, before Spark starts, and changes nothing."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from spark_mq.cli.exit_status import FAILED, NOT_UNDERSTOOD
from spark_mq.cli.main import main
from tests.support.stores import WORKLOAD, Unpack, tree_of

FAILURES = [
    ("query-by-id /no/such/store 7F00000100002A9F0000000000000000", "does not exist"),
    ("query-by-offset STORE OrderEvents 0 3 --body-file /no/folder/x", "/no/folder/x"),
    ("recover TMP/nowhere --as 5.3.3", "TMP/nowhere does not exist"),
    ("state TMP/nowhere", "TMP/nowhere does not exist"),
    ("state TMP/other", "no commitlog folder"),
    ("retention TMP/nowhere", "TMP/nowhere does not exist"),
    ("check TMP/nowhere", "TMP/nowhere does not exist"),
    ("expire TMP/nowhere --min-offset 1", "TMP/nowhere does not exist"),
    ("expire TMP/other --min-offset 1 --apply", "no commitlog folder"),
    ("rebuild TMP/nowhere", "nowhere does not exist: give the broker's store directory (storePathRootDir)"),
    ("rebuild TMP", "has no commitlog folder"),
    ("rebuild STORE", "--replace"),
    ("rebuild STORE --output TMP/bad.conf", "is a file"),
    ("repair TMP/nowhere", "does not exist"),
    ("repair STORE --output STORE/config", "is not empty"),
    ("archive /no/such/store /lake/messages", "/no/such/store"),
    ("archive STORE /dev/null/messages", "/dev/null/messages cannot be written"),
    ("archive STORE /proc/messages", "/proc/messages cannot be written"),
    ("archive STORE TMP/bad.conf", "TMP/bad.conf cannot be written"),
    ("archive STORE lake.messages --checkpoint TMP/bad.conf", "TMP/bad.conf cannot be written"),
    ("archive TMP/other TMP/new", "TMP/other"),
]
MISUNDERSTANDINGS = [
    ("query-by-id STORE 'no id'", "32 or 56"),
    (f"query-by-id STORE {'A' * 32} {'B' * 32} --body-file x", "one ID"),
    ("print-message STORE OrderEvents --begin tomorrow", "--begin"),
    ("print-message STORE OrderEvents --begin 1795248093", "--begin=1795248093 is too small for epoch milliseconds"),
    ("query-by-key STORE OrderEvents k --end 1795248093", "give 1795248093000"),
    ("topics STORE --skip-unreadable", "--skip-unreadable has no effect on one store"),
    ("topics --stores /nowhere.json", "the file of stores /nowhere.json cannot be read"),
    ("query-by-key --stores TMP/stores.json OrderEvents k --broker-conf x", "--broker-conf is of one broker"),
    ("print-message --stores TMP/stores.json OrderEvents --follow", "--follow prints the messages of one store"),
    ("transactions --stores TMP/stores.json --broker x", "--broker has no effect: --stores names stores"),
    ("archive --stores TMP/stores.json ./t --follow 1", "--follow archives one store"),
    ("archive --stores TMP/stores.json ./t --broker x", "--broker is for one store"),
    ("sql 'SELECT 1'", "give --store NAME=PATH"),
    ("sql 'SELECT 1' --store a=STORE --skip-unreadable", "--skip-unreadable has no effect on one store"),
    ("sql 'SELECT 1' --stores TMP/stores.json --store a=STORE", "--store and --stores exclude each other"),
    ("print-message STORE OrderEvents --begin now --end -1h", "is after --end"),
    ("print-message STORE OrderEvents --tag ''", "--tag '' names no tag"),
    ("print-message STORE OrderEvents --tag ' || '", "names no tag"),
    ("print-message STORE OrderEvents --key ''", "--key '' is empty"),
    ("print-message STORE OrderEvents --last 3 --limit 3", "give one of them"),
    ("print-message STORE OrderEvents --last 0", "give 1 or more"),
    ("print-message STORE OrderEvents --follow --end now", "leave out --end"),
    ("print-message STORE OrderEvents --columns body --body none", "--body none"),
    ("print-message STORE OrderEvents --columns tags,tags", "named twice"),
    ("print-message STORE OrderEvents --columns tag", "similar: tags"),
    ("print-message STORE OrderEvents --filter \"price > 'x'\"", "column 7: > compares properties and numbers"),
    ("print-message STORE OrderEvents --filter \"region LIKE 'e%'\"", "RocketMQ reads only 'region' of the filter"),
    ("query-by-key STORE OrderEvents k --broker-conf /dev/zero", "/dev/zero: cannot be read"),
    ("query-by-key /data/store '' key", "TOPIC is empty"),
    ("query-by-key /data/store orders ''", "KEY is empty"),
    ("topics s3://", "names no bucket"),
    ("topics ''", "is empty: give a text"),
    ("queues STORE --broker-version 3", "broker version"),
    ("recover STORE --as 3", "neither 4.9 nor 5"),
    ("recover STORE --as 5.3", "brokers of 5.3 recover by different rules: give a version such as 5.3.1 or 5.3.3"),
    ("recover STORE --as 5.3.3 --broker-conf nowhere", "there is no such file"),
    ("state STORE --broker-version 3", "neither 4.9 nor 5"),
    ("state STORE --broker-version 5.x", "'5.x' is not a version such as 4.9.7 or 5.3.3"),
    ("state STORE --broker-conf STORE", "it is a folder"),
    ("retention STORE --at 1", "too small for epoch milliseconds"),
    ("retention STORE --archive a.b.c", "is a name in the catalog"),
    ("check STORE --expect-version 6.1", "6.1"),
    ("expire STORE --min-offset 1 --at now", "--at has no effect with --min-offset"),
    ("expire STORE --reserved-hours 1 --at noon", "is not a time"),
    ("rebuild STORE --replace --broker-conf TMP/other.conf", "which is of another broker"),
    ("rebuild STORE --output STORE/index/new", "is inside"),
    ("rebuild STORE --output TMP/out --time-zone Nowhere/Land", "--time-zone"),
    ("rebuild STORE --output TMP/out --broker-conf TMP/no.conf", "no.conf"),
    ("rebuild STORE --output TMP/out --broker-version 3", "neither 4.9 nor 5"),
    ("rebuild STORE --output TMP/out --split-size much", "--split-size"),
    ("rebuild STORE --resume --replace", "give one of them"),
    ("rebuild STORE --resume --no-backup", "--no-backup has no effect without --replace"),
    ("rebuild STORE --queue-id 1", "needs --topic"),
    ("rebuild STORE --topic a --only index", "leave out one of them"),
    ("rebuild STORE --topic ../commitlog", "--topic: "),
    ("rebuild STORE --topic a --queue-id -1", "--queue-id -1"),
    ("repair STORE --in-place --output TMP/out", "give one of them"),
    ("repair STORE --undo --cut-log-at 5", "give one of them"),
    ("repair STORE --undo --output TMP/out", "leave out --output"),
    ("repair STORE --undo", "no backup of a repair"),
    ("repair STORE --output STORE/index/new", "is inside"),
    ("repair STORE --blank-range 5", "is not START:END"),
    ("repair STORE --cut-log-at 5", "no record starts at commit log offset 5"),
    ("archive STORE lake.messages", "--checkpoint"),
    ("archive STORE 'no table'", "is not a table"),
    ("archive STORE /lake/messages --max-bytes much", "--max-bytes"),
    ("archive STORE /lake/messages --broker-conf /no/such/file", "/no/such/file"),
    ("archive STORE STORE", "in the folder of the store"),
    ("archive STORE STORE/lake/messages", "in the folder of the store"),
    ("archive STORE STORE/..", "or contains it"),
    ("archive STORE TMP/new --checkpoint STORE/config", "STORE/config is in the folder"),
    ("archive STORE TMP/new --checkpoint TMP/new/c", "TMP/new/c is in the folder of the table TMP/new"),
    ("archive STORE TMP/other", "TMP/other has files, but is not a Delta table"),
    ("archive STORE TMP/other/keys", "TMP/other/keys_keys has files, but is not a Delta table"),
    ("archive STORE TMP/new --cluster ''", "--cluster: '' is empty"),
    ("archive STORE TMP/new --broker 'a\x1b[2J'", "--broker: 'a\\x1b[2J' contains a character"),
    ("archive STORE TMP/new --broker '${spark.master}'", "--broker: '${spark.master}' contains"),
    ("archive STORE TMP/new --store-name 's#lost-1-2'", "--store-name: 's#lost-1-2' contains"),
    ("archive STORE TMP/new --broker-conf TMP/bad.conf", "brokerName in TMP/bad.conf: ' ' is empty"),
]
USAGE_ERRORS = [
    ("archive", "required"),
    ("archive /s", "required"),
    ("archive /s /t --x", "there is no option --x"),
    *(
        (
            f"archive /s /t --follow {value}",
            f"'{value}' is not an interval in seconds: give a number from 0.1 to 86,400",
        )
        for value in ("0", "-5", "nan", "inf", "1e300", "soon")
    ),
    ("maintain-archive", "required"),
    ("maintain-archive /t --apply --dry-run", "not allowed with"),
    *(
        (f"maintain-archive /t {argument} {value}", f"{argument}: '{value}' is not a number of")
        for argument in ("--keep-days", "--vacuum-hours")
        for value in ("-1", "nan", "1e300")
    ),
    ("expire store", "required"),
    ("expire store --min-offset 1 --reserved-hours 1", "not allowed with"),
    ("expire store --min-offset -1", "--min-offset"),
    ("expire store --reserved-hours long", "--reserved-hours"),
    ("query-by-key store orders k --max-num=0", "give 1 or more"),
    ("query-by-offset store orders -1 0", "'-1' is not a queue id"),
    ("print-message store orders --queue-id -1", "'-1' is not a queue id"),
    ("print-message store orders --limit=-5", "is not a number of rows"),
    ("print-message store orders --limit=99999999999999999999", "is not a number of rows"),
    ("print-message store orders --limit=many", "is not a number of rows"),
]


@pytest.mark.parametrize(
    ("status", "words", "message"),
    [(FAILED, *case) for case in FAILURES] + [(NOT_UNDERSTOOD, *case) for case in MISUNDERSTANDINGS],
    ids=str,
)
def test_what_cannot_be_done_is_one_line_before_spark_starts(
    status: int,
    words: str,
    message: str,
    unpacked: Unpack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", lambda *_, **_how: pytest.fail("Spark starts"))
    (tmp_path / "other" / "keys_keys").mkdir(parents=True)
    (tmp_path / "other" / "keys_keys" / "notes.txt").touch()
    (tmp_path / "other.conf").write_text("mappedFileSizeConsumeQueue=4000\n")
    (tmp_path / "bad.conf").write_text("brokerName=\\ \n")
    store = unpacked(WORKLOAD)
    (tmp_path / "stores.json").write_text(json.dumps([{"path": str(store)}, {"path": str(store), "name": "other"}]))
    before = [tree_of(store), tree_of(tmp_path)]

    def named(text: str) -> str:
        return re.sub("STORE|TMP", lambda match: str({"STORE": store, "TMP": tmp_path}[match[0]]), text)

    assert main(shlex.split(named(words))) == status
    out, errors = capsys.readouterr()
    (line,) = errors.splitlines()
    assert line.startswith("spark-mq: ")
    assert named(message) in line
    assert out == ""
    assert [tree_of(store), tree_of(tmp_path)] == before


@pytest.mark.parametrize(("words", "message"), USAGE_ERRORS)
def test_what_is_not_an_argument_is_an_error_after_the_usage(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == NOT_UNDERSTOOD
    usage, *_, last = capsys.readouterr().err.splitlines()
    assert usage.startswith(f"usage: spark-mq {words.split()[0]} ")
    assert message in last
