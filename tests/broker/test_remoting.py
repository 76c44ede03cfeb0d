"""The protocol against RocketMQ's own classes: the codec of commands, brokers that demand keys, and TLS."""

from __future__ import annotations

import json
import pickle
import random
import re
import shutil
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.errors import ProtocolError, RefusedError, RemotingError
from spark_mq.live import datasource as live
from spark_mq.remoting.access import Credentials
from spark_mq.remoting.client import ClientSettings, RemotingClient
from spark_mq.remoting.codes import LanguageCode, RequestCode
from spark_mq.remoting.command import RemotingCommand, SerializeType, decode, encode
from spark_mq.remoting.requests import max_offset
from tests.broker import harness
from tests.support.commands import changed, random_command
from tests.support.stores import RealStore

pytestmark = pytest.mark.broker
VERSIONS = ("4.9.7", "5.5.0")
COMMANDS = 3000
LAST_LANGUAGE = {"4.9.7": LanguageCode.RUST, "5.5.0": max(LanguageCode)}
"""The last language that a version knows; it has null for others."""
HEADER_NAMES = {"code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC", "version"}


def fields_of(command: RemotingCommand, version: str) -> dict[str, Any]:
    """A command as the Java class `Codec` writes it."""
    is_known = command.language is not None and command.language <= LAST_LANGUAGE[version]
    return {
        "code": command.code,
        "language": command.language.name if command.language is not None and is_known else None,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "remark": command.remark,
        "extFields": dict(command.ext_fields),
        "serializeType": command.serialize_type.name,
        "body": command.body.hex(),
    }


def in_java(lines: Iterable[Mapping[str, Any]], version: str) -> list[dict[str, Any]]:
    """What `RemotingCommand` makes of each line, as the Java class `Codec` says: a command of a frame, or a frame."""
    return harness.answers("codec", map(json.dumps, lines), version)


def without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Java's fields as ours: no body is an empty one, and in a ROCKETMQ header each null text is an empty one."""
    is_json = fields["serializeType"] == SerializeType.JSON.name
    given = fields["extFields"] or {}
    texts = {"" if name == "null" and not is_json else name: value or "" for name, value in given.items()}
    return {**fields, "extFields": texts, "body": fields["body"] or "", "remark": fields["remark"] or None}


def is_plain(frame: bytes) -> bool:
    """Whether Java and we read a header by the same rules; those that we refuse, or that nobody writes, are others."""
    header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")]
    if frame[4] != SerializeType.JSON:
        command = decode(frame)
        return "\ufffd" not in "".join((command.remark or "", *command.ext_fields, *command.ext_fields.values()))
    content = json.loads(header.decode("utf-8", "replace"), strict=False)
    has_halves = re.search(rb"\\ud[89a-f]", header.replace(b"\\ud83d\\ude00", b"")) is not None
    return (
        header.isascii()
        and not has_halves
        and content.keys() <= HEADER_NAMES
        and "opaque" in content  # Java takes its own next number
        and content.get("language", "JAVA") in LanguageCode.__members__  # fastjson reads them in any case
    )


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_java_decodes_what_we_encode_to_the_same_fields(version: str) -> None:
    choice = random.Random(1)
    sent = [random_command(choice) for _ in range(COMMANDS)]
    answers = in_java([{"frame": encode(command)[4:].hex()} for command in sent], version)
    assert [without_nulls(answer) for answer in answers] == [fields_of(command, version) for command in sent]


def test_we_decode_what_java_encodes_to_the_same_fields(version: str) -> None:
    choice = random.Random(2)
    languages = [language for language in LanguageCode if language <= LAST_LANGUAGE[version]]
    sent = [fields_of(random_command(choice, languages), version) for _ in range(COMMANDS)]
    nulls = [{**fields, "body": fields["body"] or None, "extFields": fields["extFields"] or None} for fields in sent]
    answers = in_java(nulls, version)
    assert [fields_of(decode(bytes.fromhex(answer["frame"])), version) for answer in answers] == sent


def test_changed_frames_are_the_same_commands_or_errors(version: str) -> None:
    choice = random.Random(3)
    frames = [changed(choice, encode(random_command(choice))) for _ in range(COMMANDS)]
    seen: Counter[str] = Counter()
    for frame, answer in zip(frames, in_java([{"frame": frame[4:].hex()} for frame in frames], version), strict=True):
        try:
            command = decode(frame)
        except ProtocolError:
            seen["refused by both" if "failure" in answer else "refused by us"] += 1
            continue
        if is_plain(frame):
            assert "failure" not in answer, (frame, command)
            assert without_nulls(answer) == fields_of(command, version), frame
            seen["decoded by both"] += 1
    # Java reads JSON that is none, and headers with wrong lengths.
    assert seen["refused by us"] < COMMANDS / 8
    assert min(seen["decoded by both"], seen["refused by both"]) > COMMANDS / 8


ACCESS_KEY, SECRET_KEY = "reader-of-orders", "secret-12345678"
PLAIN_ACL = f"""
accounts:
  - accessKey: {ACCESS_KEY}
    secretKey: {SECRET_KEY}
    admin: false
    defaultTopicPerm: SUB
    defaultGroupPerm: SUB
    topicPerms:
      - RetryDemo=PUB|SUB
  - accessKey: ordinary
    secretKey: {SECRET_KEY}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - OrderEvents=SUB
    groupPerms:
      - GID_reader=SUB
"""
"""Users of 4.9: one who reads all topics and groups, and writes one topic; one who reads a topic by one group."""
USER = json.dumps({"username": ACCESS_KEY, "password": SECRET_KEY})
INNER = json.dumps({"accessKey": "inner-client", "secretKey": "inner-secret"})
_AUTH = "org.apache.rocketmq.auth"
AUTH = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": USER,
    "innerClientAuthenticationCredentials": INNER,
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
"""The settings of a broker of 5.3 or later with one user, who may do everything."""
WRONG_KEYS = [
    {},
    {"accessKey": ACCESS_KEY, "secretKey": "wrong-secret"},
    {"accessKey": "nobody", "secretKey": SECRET_KEY},
]


def settings_of(store: RealStore, more: Mapping[str, str]) -> dict[str, str]:
    lines = (line.partition("=") for line in store.broker_conf.read_text().splitlines())
    return {name.strip(): value.strip() for name, mark, value in lines if mark} | dict(more)


def rows_of(broker: harness.Broker, options: Mapping[str, str]) -> list[dict[str, Any]]:
    given = {"path": f"rocketmq://{broker.name_server}", "requestTimeout": "3"} | dict(options)
    if not given.keys() & {"table", "topic"}:
        given["topic"] = "OrderEvents"
    reader = live.reader(given, live.schema(given))
    batches: Iterator[Any] = (batch for partition in reader.partitions() for batch in reader.read(partition))
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def guarded(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Broker]:
    """A broker that takes signed requests only."""
    packed = harness.WORKLOADS[version]
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "conf").mkdir()
    (folder / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
    more = {"aclEnable": "true"} if version == "4.9.7" else AUTH
    properties = {"rocketmq.home.dir": str(folder)}
    with harness.Broker(version, packed.unpack(folder), settings_of(packed, more), properties=properties) as broker:
        yield broker


def test_right_keys_read_messages_by_queue_and_by_key(guarded: harness.Broker) -> None:
    keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    rows = rows_of(guarded, keys)
    assert len(rows) > 50
    found = rows_of(guarded, keys | {"uniqueKey": rows[7]["unique_key"]})
    assert found == [rows[7]]
    (key, *_) = next(row["keys"] for row in rows if row["keys"])
    assert rows_of(guarded, keys | {"key": key})
    for table in ("queues", "topics", "consumer_offsets", "consumer_progress"):
        assert rows_of(guarded, {**keys, "table": table})


def test_an_ordinary_user_reads_one_topic(guarded: harness.Broker, version: str) -> None:
    """In the name of one group. Without a right, the error says what it is."""
    keys = {"accessKey": "ordinary", "secretKey": SECRET_KEY}
    own_group = keys | {"pullGroup": "GID_reader"}
    if version == "5.5.0":
        user = {"username": "ordinary", "password": SECRET_KEY, "userType": "Normal", "userStatus": "enable"}
        allow(guarded, RequestCode.AUTH_CREATE_USER, {"username": "ordinary"}, user)
        allow(guarded, RequestCode.AUTH_CREATE_ACL, {"subject": "User:ordinary"}, acl_of("Sub"))
        with pytest.raises(RefusedError, match=r"to access Topic:OrderEvents .* The request needs the right Get there"):
            rows_of(guarded, own_group)
        allow(guarded, RequestCode.AUTH_UPDATE_ACL, {"subject": "User:ordinary"}, acl_of("Sub", "Get"))
    rows = rows_of(guarded, own_group)
    assert rows == rows_of(guarded, {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY})
    assert rows_of(guarded, own_group | {"uniqueKey": rows[7]["unique_key"]}) == [rows[7]]
    with pytest.raises(RefusedError, match=r"TOOLS_CONSUMER") as refused:
        rows_of(guarded, keys)
    assert ("needs the right Sub" in str(refused.value)) == (version == "5.5.0")
    with pytest.raises(RefusedError, match="PaymentLog"):
        rows_of(guarded, own_group | {"topic": "PaymentLog"})


def acl_of(*actions: str) -> dict[str, Any]:
    rights = {"Topic:OrderEvents": actions, "Group:GID_reader": ["Sub"]}
    entries = [{"resource": one, "actions": of, "decision": "Allow"} for one, of in rights.items()]
    return {"subject": "User:ordinary", "policies": [{"policyType": "CUSTOM", "entries": entries}]}


def allow(broker: harness.Broker, code: RequestCode, fields: Mapping[str, str], content: Mapping[str, Any]) -> None:
    """Let the super user change users or rights."""
    settings = ClientSettings((broker.name_server,), 3.0, Credentials(ACCESS_KEY, SECRET_KEY))
    with RemotingClient(settings) as client:
        client.request(broker.address, code, fields, json.dumps(content).encode())


@pytest.mark.parametrize("keys", WRONG_KEYS, ids=["none", "wrong secret", "unknown user"])
@pytest.mark.parametrize("kind", SerializeType)
def test_missing_and_wrong_keys_are_refused_without_a_secret(
    guarded: harness.Broker, keys: dict[str, str], kind: SerializeType, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RefusedError) as refused:
        rows_of(guarded, keys)
    assert str(refused.value).startswith(f"{guarded.address}: ")
    credentials = Credentials(keys["accessKey"], keys["secretKey"]) if keys else None
    settings = ClientSettings((guarded.name_server,), 3.0, credentials, serialize_type=kind)
    with (
        RemotingClient(settings) as client,
        pytest.raises(RefusedError, match=f"{guarded.address}: GET_MAX_OFFSET was"),
    ):
        max_offset(client, guarded.address, "OrderEvents", 0)
    shown = repr(settings) + repr(refused.value) + caplog.text + "".join(traceback.format_exception(refused.value))
    assert "secret-" not in shown
    assert "wrong-secret" not in shown
    assert repr(pickle.loads(pickle.dumps(settings))) == repr(settings)


def test_messages_are_sent_again_with_the_right_keys_only(
    guarded: harness.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf, journal = tmp_path / "live.conf", tmp_path / "journal"
    address, shown = f"rocketmq://{guarded.name_server}", ""
    for keys, status, sent in ((WRONG_KEYS[1], 1, 0), ({"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}, 0, 5)):
        conf.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))
        words = ["--dead-letters", "GID_failing", "--client-conf", str(conf), "--json"]
        assert main(["resend", str(guarded.store), address, *words, "--apply", "--journal", str(journal)]) == status
        printed = capsys.readouterr()
        assert json.loads(printed.out)["sent"] == sent
        shown += printed.out + printed.err
        assert main(["resend", address, *words]) == status  # the same without the files
        shown += capsys.readouterr().err
    assert not re.search("secret-1|wrong-secret", shown + journal.read_text())


@pytest.fixture(scope="module")
def encrypted(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[harness.Broker, Path]]:
    """A broker and a name server that take TLS only, and the certificate of both."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    packed = harness.WORKLOADS[version]
    folder = tmp_path_factory.mktemp("encrypted")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker"]
    subprocess.run([*words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    properties = {
        "tls.server.mode": "enforcing",
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(key),
        "tls.server.need.client.auth": "optional",  # a client's certificate, if it has one, must be trusted
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": str(certificate),
    }
    with harness.Broker(version, packed.unpack(folder), packed.broker_conf, properties=properties) as broker:
        yield broker, certificate


def test_a_read_over_tls(encrypted: tuple[harness.Broker, Path]) -> None:
    broker, certificate = encrypted
    rows = rows_of(broker, {"tls": "true", "tlsCa": str(certificate)})
    assert len(rows) > 50
    assert rows == rows_of(broker, {"tls": "true", "tlsVerify": "false"})
    key = certificate.with_name("key.pem")
    with_own = {"tls": "true", "tlsCa": str(certificate), "tlsCertificate": str(certificate), "tlsKey": str(key)}
    assert rows == rows_of(broker, with_own)
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other"]
    other, of_other = certificate.with_name("other.pem"), certificate.with_name("of_other.pem")
    subprocess.run([*words, "-keyout", str(of_other), "-out", str(other)], check=True, capture_output=True)
    with pytest.raises(RemotingError, match="certificate"):
        rows_of(broker, {**with_own, "tlsCertificate": str(other), "tlsKey": str(of_other)})


def test_a_certificate_that_is_not_trusted_and_a_plain_client(encrypted: tuple[harness.Broker, Path]) -> None:
    broker, _ = encrypted
    for options, reason in (({"tls": "true"}, "certificate verify failed"), ({}, "GET_BROKER_CLUSTER_INFO")):
        start = time.monotonic()
        with pytest.raises(RemotingError, match=reason) as refused:
            rows_of(broker, options)
        assert broker.name_server in str(refused.value)
        assert time.monotonic() - start < 20


def test_a_tls_client_of_a_plain_server(guarded: harness.Broker) -> None:
    start = time.monotonic()
    with pytest.raises(RemotingError, match="no TLS connection") as refused:
        rows_of(guarded, {"tls": "true", "tlsVerify": "false"})
    assert guarded.name_server in str(refused.value)
    assert time.monotonic() - start < 20
