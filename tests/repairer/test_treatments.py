"""Every code of a finding has one treatment."""

from __future__ import annotations

from spark_mq.repairer import treatments
from spark_mq.repairer.treatments import TREATMENTS, Treatment
from spark_mq.verifier.codes import Severity, all_codes


def test_every_code_has_one_treatment() -> None:
    named = [code for codes in treatments._CODES.values() for code in codes]
    assert sorted(named) == sorted(code.name for code in all_codes())


def test_only_notes_need_nothing() -> None:
    severities = {code.name: code.severity for code in all_codes()}
    ignored = {severities[code] for code, treatment in TREATMENTS.items() if treatment == Treatment.NOTHING}
    assert ignored == {Severity.NOTE}
