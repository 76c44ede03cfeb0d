"""Versions, the table of rules that differ between them, and ranges of versions."""

from __future__ import annotations

import re

import pytest

from spark_mq.errors import OptionError
from spark_mq.format import broker_version as module
from spark_mq.format.broker_version import NEWEST, OLDEST, RELEASES, BrokerVersion, BrokerVersions, version_rules


def test_versions_compare_as_numbers() -> None:
    assert list(RELEASES) == sorted(RELEASES)
    assert [str(version) for version in (OLDEST, NEWEST)] == ["4.9.0", "5.5.1"]
    assert BrokerVersion.parse("5.1.10") > BrokerVersion.parse("5.1.9") == BrokerVersion(5, 1, 9)


@pytest.mark.parametrize("text", ["", "5", "5.1", "v5.1.0", "5.1.0-ALPHA", "5.1.0.1", "5.1.٣", "-5.1.0"])
def test_a_version_has_three_numbers(text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(repr(text))):
        BrokerVersion.parse(text)


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("5.1.0", "5.1.0"),
        ("5.0.0", "5.0.0"),
        ("5.1", "5.1.0 to 5.1.4"),
        ("5", "5.0.0 to 5.5.1"),
        ("4.9", "4.9.0 to 4.9.8"),
        ("4.9.7", "4.9.7"),
        ("5.3.4", "5.3.3 to 5.4.0"),
        ("5.2.9", "5.2.0 to 5.3.0"),
        ("5.5.2", "5.5.1"),
        ("5.6", "5.5.1"),
    ],
)
def test_the_versions_that_a_person_names(text: str, versions: str) -> None:
    assert str(BrokerVersions.parse(text)) == versions


@pytest.mark.parametrize("text", ["5.5.2", "5.6", "5.99.0"])
def test_a_version_that_is_too_new_is_said(text: str) -> None:
    versions = BrokerVersions.parse(text)
    assert f"{text}: newer than 5.5.1" in versions.evidence
    assert versions.is_assumed
    assert not BrokerVersions.parse("5.5.1").is_assumed


def test_a_release_between_two_known_ones_stands_for_what_both_do() -> None:
    versions = BrokerVersions.parse("5.3.4")
    assert "5.3.4: its rules are not known, only those of 5.3.3 and 5.4.0" in versions.evidence
    assert versions.decide(module.INDEX_TAGS) is None
    assert versions.decide(module.OFFSET_BY_STORE_TIME) is True
    assert versions.decide(module.CHECKPOINT_LOGICS_OFFSET) is False


@pytest.mark.parametrize("text", ["", "4", "4.8.0", "3.2.6", "6", "6.0.0", "5.", "5.x", "5.1.0.0", "5.1.0 ", "latest"])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"neither 4\.9 nor 5|not a version"):
        BrokerVersions.parse(text)


@pytest.mark.parametrize("name", version_rules())
def test_each_rule_is_followed_by_some_known_releases_only(name: str) -> None:
    """A boundary that is not a release would be a rule that no test of a version can see."""
    rule = version_rules()[name]
    boundary = rule.since or rule.until
    assert boundary in RELEASES
    assert {rule.holds(version) for version in RELEASES} == {True, False}
    assert rule.holds(boundary) is (rule.since is not None)
    assert re.search(r"@\d\.\d\.\d", rule.source)
    whole = BrokerVersions(OLDEST, NEWEST, "")
    assert whole.decide(rule) is None
    assert BrokerVersions(boundary, boundary, "").decide(rule) is (rule.since is not None)
