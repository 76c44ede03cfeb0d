"""Each damage of the catalogue (`tests/support/damages.py`) is named with code, file and position."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.verifier.codes import CODES
from tests.support.damages import DAMAGES, Damage
from tests.support.stores import OWN_STORES, RealStore, Unpack
from tests.support.verified import Bench, check, grave


@pytest.mark.parametrize("case", DAMAGES, ids=str)
def test_a_damage_is_named_with_code_and_place(case: Damage, unpacked: Unpack, tmp_path: Path) -> None:
    bench = Bench.of(unpacked(RealStore(case.store, OWN_STORES)), case.store, tmp_path)
    file, position = case.do(bench)
    _, findings = check(bench.path, bench.packed.broker_conf)
    found = {(finding.code, finding.file, finding.position) for finding in grave(findings)}
    assert (case.code, file, position) in found, sorted(found, key=str)
    assert {code for code, _, _ in found} <= {case.code, *case.also}


def test_the_catalogue_has_every_code_from_warning_up() -> None:
    with_extensions = {"QUEUE_EXT_MISSING", "QUEUE_EXT_TIME"}
    of_databases = {"INDEX_DATABASE", "QUEUE_DATABASE", "QUEUE_OFFSET_TABLE"}
    others = {"INDEX_ENTRY_STALE", "INDEX_NO_MESSAGE", "QUEUE_OFFSET_TWICE", "TOPIC_NAME"}
    of_dledger = {"DLEDGER_ENTRY", "DLEDGER_INDEX", "DLEDGER_LOST"}
    of_copies = {"COMPACTION_MISSING", "COMPACTION_POSITION", "COMPACTION_RECORD", "COMPACTION_UNIT"}
    tiered = ("CORRUPT", "FILE", "INDEX", "RECORD", "TIMES", "UNIT")
    of_tiered = {f"TIERED_{name}" for name in tiered}
    elsewhere = others | with_extensions | of_databases | of_dledger | of_copies | of_tiered
    grave_codes = {name for name, code in CODES.items() if code.severity != "note"}
    assert grave_codes - {entry.code for entry in DAMAGES} == elsewhere
    assert len(DAMAGES) >= 50
