"""Addresses of S3, and of services that speak its protocol, with their settings.

An address is `s3://BUCKET/PATH?NAME=VALUE&...`; `s3a:` and `s3n:` mean the same. The names of settings are pyarrow's.
Each setting can also be an option with its Hadoop name (`fs.s3a.endpoint`), or come from the environment
(`AWS_ENDPOINT_URL`). The address wins over the options, and the options over the environment. A path is taken as it is,
so `%RETRY%group` in it needs no escapes.

Python workers of Spark do not see the session's settings, and executors have an environment of their own. Therefore
`with_settings` puts options and environment into the address once, when a read is planned. Such an address can contain
secrets: `redacted` is what people may see.

Spark reads and writes the tables of an archive through Hadoop, which has another scheme and other names of settings:
`hadoop_address` and `hadoop_settings`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

from spark_mq.errors import OptionError

Settings: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of settings."""

_SCHEMES: Final = ("s3://", "s3a://", "s3n://")
_SECRETS: Final = ("access_key", "secret_key", "session_token")
FLAGS: Final = ("anonymous", "force_virtual_addressing")
"""The settings that are `true` or `false`."""
_ALL: Final = (*_SECRETS, "region", "scheme", "endpoint_override", "tls_ca_file_path", *FLAGS)
_PROVIDER: Final = "aws.credentials.provider"
DEFAULT_REGION: Final = "us-east-1"
"""The region of a service other than Amazon's, if none is given."""

OPTIONS: Final = {
    "fs.s3a.access.key": "access_key",
    "fs.s3a.secret.key": "secret_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint": "endpoint_override",
    "fs.s3a.endpoint.region": "region",
    "fs.s3a.connection.ssl.enabled": "scheme",
    "fs.s3a.path.style.access": "force_virtual_addressing",
}
"""Options of a read by their names in Hadoop, and the settings that they give."""

SECRET_OPTIONS: Final = frozenset(option for option, name in OPTIONS.items() if name in _SECRETS)
"""The options whose values nobody may see."""

_ENVIRONMENT: Final = {
    "access_key": ("AWS_ACCESS_KEY_ID",),
    "secret_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "endpoint_override": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}

_HTTP: Final = ("http", "https")
_ENDPOINT: Final = re.compile(r"(?:[^\s/:?#@\[\]]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?(?:/[^\s?#@]*)?")
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_LAST_PORT: Final = 65535
_NO_NAMES: Final = frozenset(("", ".", ".."))
"""What is not the name of a folder or file."""

_USER: Final = re.compile(r"(?<=://)[^/?\s@]*:[^?\s@]*@")
_SECRET: Final = re.compile(rf"\b((?:{'|'.join(_SECRETS).replace('_', '[_.]')})\s*=\s*)[^&\s'\";]+")


def is_s3(uri: str) -> bool:
    """Whether the text is an address of S3."""
    return uri.startswith(_SCHEMES)


def redacted(text: str) -> str:
    """The text without the secrets of addresses, and of Hadoop's settings, in it."""
    return _SECRET.sub(r"\1***", _USER.sub("***@", text))


def shown(uri: str) -> str:
    """The path or URI as people may see it: without settings and secrets."""
    return redacted(uri.partition("?")[0]) if "://" in uri else uri


def with_settings(
    uri: str, options: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """An address of S3 with all settings in it; any other path or URI as it is.

    With it, another process opens the same files with the same rights. The options have their names in Hadoop.
    """
    if not is_s3(uri):
        if options:
            raise OptionError(f"option {next(iter(options))} has no effect on {redacted(uri)!r}: it is for s3://")
        return uri
    bucket, path, settings = parse(uri)
    settings = _completed(settings, _of_options(options or {}))
    settings = _completed(settings, _of_environment(os.environ if environment is None else environment))
    for name, value in settings.items():
        if _CONTROL.search(value):
            raise OptionError(
                f"{shown(uri)!r}: {name}, in the address, an option or the environment, has a line break or another "
                "control character: remove it"
            )
    return address(f"{bucket}{path}", tuple(settings.items()))


def address(path: str, settings: Settings) -> str:
    """The address of a path, which begins with the bucket, with settings."""
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in settings)
    return f"s3://{path}{'?' if query else ''}{query}"


def hadoop_address(uri: str) -> str:
    """The address by which Spark knows a path of S3, without settings; any other path or URI is returned as it is."""
    if not is_s3(uri):
        return uri
    bucket, path, _ = parse(uri)
    return f"s3a://{bucket}{path}"


def hadoop_settings(uri: str) -> dict[str, str]:
    """The settings of an address by their names in Hadoop, for its bucket only; they can be secrets."""
    bucket, _, settings = parse(uri)
    names = {name: option.removeprefix("fs.s3a.") for option, name in OPTIONS.items()}
    values = {names[name]: settings[name] for name in (*_SECRETS, "endpoint_override", "region") if name in settings}
    if "endpoint_override" in settings:
        # As `object_store` does, which writes the bucket into the host name only if told so.
        virtual = "force_virtual_addressing"
        values[names[virtual]] = str(not is_set(settings, virtual)).lower()
        values[names["scheme"]] = str(settings.get("scheme", "https") == "https").lower()
        values.setdefault(names["region"], DEFAULT_REGION)
    if is_set(settings, "anonymous"):
        values[_PROVIDER] = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    elif "session_token" in settings:
        values[_PROVIDER] = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
    elif "access_key" in settings:
        values[_PROVIDER] = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    values["input.stream.type"] = "classic"  # the default of Hadoop 3.5 fails if a body is cut short
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in values.items()}


def parse(uri: str) -> tuple[str, str, dict[str, str]]:
    """Bucket, path (empty, or with a slash at its start), and settings of an address. Raises `OptionError`."""
    address, _, query = uri.partition("?")
    place = address.partition("://")[2]
    settings: dict[str, str] = {}
    authority, slash, path = place.partition("/")
    user, at, bucket = authority.rpartition("@")
    if at:
        access_key, _, secret_key = user.partition(":")
        settings |= {"access_key": unquote(access_key), "secret_key": unquote(secret_key)}
    if ":" in bucket:
        raise OptionError("the address of S3 has ':' before its first '/': write a '/' of a secret key as %2F")
    if not bucket:
        raise OptionError(f"{redacted(uri)!r} names no bucket and no path")
    if not _BUCKET.fullmatch(bucket):
        raise OptionError(
            f"{shown(uri)!r}: {bucket!r} is not a name of a bucket: it has letters, digits, '.', '-', '_'"
        )
    if _NO_NAMES.intersection(path.rstrip("/").split("/")) and path.strip("/"):
        raise OptionError(
            f"{shown(uri)!r} has '//', '/./' or '/../' in its path, which clients of S3 do not take: give the path as "
            "the server lists it"
        )
    for setting in filter(None, query.split("&")):
        name, _, value = setting.partition("=")
        if name not in _ALL:
            raise OptionError(
                f"{redacted(uri)!r}: unknown setting {name}; settings follow the first '?', which no path can have; "
                f"an address of S3 has {', '.join(_ALL)}"
            )
        settings[name] = unquote(value)
        if name in FLAGS:
            flag(name, settings[name])
    if ("access_key" in settings) != ("secret_key" in settings):
        raise OptionError(f"{redacted(uri)!r}: access_key and secret_key are needed together")
    _split_endpoint(settings)
    return bucket, f"{slash}{path}".rstrip("/"), settings


def _of_options(options: Mapping[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for option, value in options.items():
        name = OPTIONS[option]
        if name == "scheme":
            value = "https" if flag(option, value) else "http"
        elif name == "force_virtual_addressing":
            value = str(not flag(option, value)).lower()
        settings[name] = value.strip()
    if ("access_key" in settings) != ("secret_key" in settings):
        raise OptionError("options fs.s3a.access.key and fs.s3a.secret.key are needed together")
    _split_endpoint(settings)
    return settings


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    settings = {}
    for name, variables in _ENVIRONMENT.items():
        value = next((environment[variable] for variable in variables if environment.get(variable)), None)
        if value is not None:
            settings[name] = value
    if not {"access_key", "secret_key"} <= settings.keys():
        settings = {name: value for name, value in settings.items() if name not in _SECRETS}
    _split_endpoint(settings)
    return settings


def _completed(settings: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """The settings, and those that only `others` has. Credentials, and an endpoint with its scheme, are not mixed."""
    left_out: set[str] = set()
    if "access_key" in settings or "anonymous" in settings:
        left_out.update(_SECRETS)
    if "endpoint_override" in settings:
        left_out.add("scheme")
    return {**{name: value for name, value in others.items() if name not in left_out}, **settings}


def _split_endpoint(settings: dict[str, str]) -> None:
    """Take an endpoint such as `http://host:9000` apart: its scheme is a setting of its own."""
    given = settings.get("endpoint_override")
    if given is None:
        return
    scheme, mark, host = given.partition("://")
    if mark:
        settings["endpoint_override"] = host.rstrip("/")
        settings.setdefault("scheme", scheme)
    address = _ENDPOINT.fullmatch(settings["endpoint_override"])
    if address is None or not 0 < int(address["port"] or 1) <= _LAST_PORT or scheme not in (*_HTTP, given):
        what = "" if "@" in given else f" {given!r}"  # it can have a password
        raise OptionError(
            f"the endpoint of S3{what} is not valid: give HOST or HOST:PORT, with http:// or https:// before it "
            "(endpoint_override, fs.s3a.endpoint or AWS_ENDPOINT_URL)"
        )


def is_set(settings: Mapping[str, str], name: str) -> bool:
    """Whether a setting that is `true` or `false` is given, and true."""
    return flag(name, settings.get(name, "false"))


def endpoint(settings: Mapping[str, str], bucket: str) -> str | None:
    """The address of the service for a bucket, if it is not Amazon's."""
    host, scheme = settings.get("endpoint_override"), settings.get("scheme", "https")
    if host is None:
        return None
    return f"{scheme}://{bucket}.{host}" if is_set(settings, "force_virtual_addressing") else f"{scheme}://{host}"


def flag(name: str, value: str) -> bool:
    """The value of a setting that is `true` or `false`. Raises `OptionError` for other values."""
    if value.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name}={value!r} is neither true nor false")
    return value.strip().lower() == "true"
