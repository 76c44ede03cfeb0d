"""Addresses, options and the environment of S3 give one set of settings, whose secrets nobody sees. No server here."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.io.s3 import hadoop_address, hadoop_settings, is_s3, redacted, shown, with_settings

KEYS = {"AWS_ACCESS_KEY_ID": "env-key", "AWS_SECRET_ACCESS_KEY": "env/secret"}
OPTIONS = {"fs.s3a.access.key": "option-key", "fs.s3a.secret.key": "option-secret"}


@pytest.mark.parametrize(
    ("uri", "options", "environment", "expected"),
    [
        ("s3a://b/p", {}, {}, "s3://b/p"),
        ("s3n://b/p/", {}, {}, "s3://b/p"),
        ("s3://b/%RETRY%g", {}, {"AWS_REGION": "eu"}, "s3://b/%RETRY%g?region=eu"),
        ("s3://b/p", {}, {"AWS_DEFAULT_REGION": "eu"}, "s3://b/p?region=eu"),
        ("s3://b/p", {}, KEYS, "s3://b/p?access_key=env-key&secret_key=env%2Fsecret"),
        ("s3://b/p", OPTIONS, KEYS, "s3://b/p?access_key=option-key&secret_key=option-secret"),
        ("s3://me:pass%2Fword@b/p", OPTIONS, KEYS, "s3://b/p?access_key=me&secret_key=pass%2Fword"),
        # A token belongs to its credentials, and half of the credentials are none.
        (
            "s3://b/p",
            OPTIONS,
            {**KEYS, "AWS_SESSION_TOKEN": "t"},
            "s3://b/p?access_key=option-key&secret_key=option-secret",
        ),
        ("s3://b/p", {}, {"AWS_SECRET_ACCESS_KEY": "x", "AWS_SESSION_TOKEN": "t"}, "s3://b/p"),
        ("s3://b/p?anonymous=true", {}, KEYS, "s3://b/p?anonymous=true"),
        ("s3://b/p", {"fs.s3a.endpoint": "http://h:9000/"}, {}, "s3://b/p?endpoint_override=h%3A9000&scheme=http"),
        (
            "s3://b/p?endpoint_override=mine:1",
            {},
            {"AWS_ENDPOINT_URL": "http://h:9000"},
            "s3://b/p?endpoint_override=mine%3A1",
        ),
        (
            "s3://b/p",
            {},
            {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "https://b"},
            "s3://b/p?endpoint_override=b&scheme=https",
        ),
        (
            "s3://b/p?endpoint_override=https://[::1]:9000/x",
            {},
            {},
            "s3://b/p?endpoint_override=%5B%3A%3A1%5D%3A9000%2Fx&scheme=https",
        ),
        ("s3://b/a b/c#d.../e//", {}, {}, "s3://b/a b/c#d.../e"),
        ("s3://b//", {}, {}, "s3://b"),
        ("s3://b/p", {"fs.s3a.path.style.access": "true"}, {}, "s3://b/p?force_virtual_addressing=false"),
        ("s3://b/p", {"fs.s3a.connection.ssl.enabled": "false"}, {}, "s3://b/p?scheme=http"),
        ("/data/store", {}, KEYS, "/data/store"),
    ],
)
def test_settings_come_from_address_options_and_environment_in_this_order(
    uri: str, options: dict[str, str], environment: dict[str, str], expected: str
) -> None:
    assert _settings(with_settings(uri, options, environment)) == _settings(expected)
    assert with_settings(expected, {}, {}) == with_settings(with_settings(expected, {}, {}), {}, {})


def _settings(uri: str) -> tuple[str, frozenset[str]]:
    address, _, query = uri.partition("?")
    return address, frozenset(query.split("&"))


@pytest.mark.parametrize(
    ("uri", "options", "message"),
    [
        ("s3://", {}, "names no bucket"),
        ("s3://b/p?regoin=eu", {}, "unknown setting regoin"),
        ("s3://b/p?access_key=me", {}, "access_key and secret_key are needed together"),
        ("s3://b/p", {"fs.s3a.access.key": "me"}, "are needed together"),
        ("s3://b/p", {"fs.s3a.path.style.access": "yes"}, "neither true nor false"),
        ("s3://b//p", {}, "'s3://b//p' has '//'"),
        ("s3://b/./p?access_key=option-key", {}, "'s3://b/./p' has '//', '/./' or"),
        ("s3://b/p/../q", {}, "which clients of S3 do not take"),
        ("s3://b/p?x", {}, "unknown setting x; settings follow the first '\\?'"),
        ("s3://b b/p", {}, "'b b' is not a name of a bucket"),
        ("s3://b/p", {**OPTIONS, "fs.s3a.session.token": "option-secret\nx"}, "session_token, .* has a line break"),
        ("s3://b/p?endpoint_override=h:x", {}, "the endpoint of S3 'h:x' is not valid"),
        ("s3://b/p", {"fs.s3a.endpoint": "http://h:65536"}, "'http://h:65536' is not valid: give HOST or HOST:PORT"),
        ("s3://b/p", {"fs.s3a.endpoint": "http://option-key:option-secret@h"}, "the endpoint of S3 is not valid"),
        ("s3://b/p", {"fs.s3a.endpoint": "ftp://h"}, "with http:// or https:// before it"),
        ("s3://me:se/cret@b/p", {}, "write a '/' of a secret key as %2F"),
        ("/data/store", OPTIONS, "has no effect on '/data/store'"),
    ],
)
def test_what_is_not_valid_is_an_error_without_secrets(uri: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        with_settings(uri, options, {})
    assert "secret" not in str(caught.value).replace("secret_key", "").replace("secret.key", "").replace("a secret", "")


def test_nobody_sees_secrets() -> None:
    uri = "s3://me:secret@b/p?secret_key=hidden&session_token=t0ken&region=eu"
    assert redacted(f"cannot open '{uri}'") == ("cannot open 's3://***@b/p?secret_key=***&session_token=***&region=eu'")
    assert shown(uri) == "s3://***@b/p"
    assert not is_s3("/s3://b")


def test_another_process_opens_the_same_files_with_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "eu"}.items():
        monkeypatch.setenv(name, value)
    location = Location.resolve("s3://b/p") / "commitlog"
    for name in (*KEYS, "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name)
    again = pickle.loads(pickle.dumps(location))
    assert again == location
    assert (again.path, str(again)) == ("b/p/commitlog", "s3://b/p/commitlog")
    assert "env%2Fsecret" in again.uri
    assert "secret" not in repr(again)
    assert Location.resolve(location.uri).storage == location.storage


def test_a_local_location_is_itself_in_another_process(tmp_path: Path) -> None:
    location = Location.resolve(str(tmp_path))
    assert pickle.loads(pickle.dumps(location)) == location


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://b/p", {}),
        ("s3://b/p?region=eu", {"endpoint.region": "eu"}),
        (
            "s3://me:se%2Fcret@b/p?endpoint_override=http://h:9000",
            {
                "access.key": "me",
                "secret.key": "se/cret",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
                "endpoint": "h:9000",
                "endpoint.region": "us-east-1",
                "connection.ssl.enabled": "false",
                "path.style.access": "true",
            },
        ),
        (
            "s3://b/p?access_key=k&secret_key=s&session_token=t",
            {
                "access.key": "k",
                "secret.key": "s",
                "session.token": "t",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
            },
        ),
        (
            "s3://b/p?endpoint_override=h&force_virtual_addressing=true&anonymous=true&region=eu",
            {
                "endpoint": "h",
                "endpoint.region": "eu",
                "connection.ssl.enabled": "true",
                "path.style.access": "false",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
            },
        ),
    ],
)
def test_hadoop_gets_the_same_settings_for_the_bucket(uri: str, expected: dict[str, str]) -> None:
    settings = {"input.stream.type": "classic", **expected}
    assert hadoop_settings(uri) == {f"fs.s3a.bucket.b.{name}": value for name, value in settings.items()}
    assert hadoop_address(uri) == "s3a://b/p"
