"""Drives the Java programs beside this file: real brokers, real clients and the Java message store.

Every function builds the Maven project for its RocketMQ version when that is needed. Stores that are only
looked at (:func:`describe`, :func:`check_served`) are copied first; the others are changed as a broker does.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.soak import SOAKS
from tests.support.stores import STORES

VERSIONS: Final = ("5.3.3", "4.9.7")
"""The RocketMQ releases that most tests run: 4.9.7 is the newest 4.9 whose broker Maven Central has."""

EVERY_VERSION: Final = (
    *("4.9.0", "4.9.4", "4.9.7"),
    *("5.0.0", "5.1.0", "5.1.4", "5.2.0"),
    *("5.3.0", "5.3.1", "5.3.2", "5.3.3", "5.4.0", "5.5.0", "5.5.1"),
)
"""All releases whose brokers these programs were seen to run, serve and check."""

NEIGHBOURS: Final[Mapping[str, Mapping[str, str]]] = {
    "5.3.0": {"controller": "5.3.1", "namesrv": "5.3.3", "tools": "5.3.1"},
    "5.3.1": {"namesrv": "5.3.3"},
    "5.3.2": {"controller": "5.3.3", "namesrv": "5.3.3", "tools": "5.3.3"},
    "5.5.1": dict.fromkeys(("auth", "client", "filter", "namesrv", "srvutil", "tools"), "5.5.0"),
}
"""By release: the jars that Maven Central lacks, and the release whose jar serves instead."""

WORKLOADS: Final = {"5.3.3": STORES["workload-533"], "4.9.7": STORES["workload-49x"], "5.5.0": STORES["workload-533"]}
"""By version of a broker, a store of all that clients can send, on which it runs."""

Settings = Path | Mapping[str, str]
"""A broker's settings: a Java properties file, or names and values."""

_PROJECT: Final = Path(__file__).resolve().parent
_OLDEST_JAVA: Final = 17
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 120.0
_RUN_SECONDS: Final = 900.0
_JAVA_OPTIONS: Final = (
    "-Xms64m",
    "-Xmx6g" if SOAKS else "-Xmx1g",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    # A JVM to which an archive of classes does not belong would print that on stdout.
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    "-Dfile.encoding=UTF-8",
    "-Duser.timezone=UTC",
    "-Drocketmq.client.logUseSlf4j=true",
    # Without this every server makes itself a key pair at its start.
    "-Dtls.server.mode=disabled",
    "-Dtls.enable=false",
    # RocketMQ unmaps its files by way of these packages.
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)


class HarnessError(Exception):
    """A Java program failed."""


class ServingError(HarnessError):
    """A broker does not serve a store as its commit log says."""

    def __init__(self, report: dict[str, Any]) -> None:
        """Keep the report and show what is wrong."""
        super().__init__(f"{report['problemCount']} problems:\n" + "\n".join(report["problems"]))
        self.report = report


@functools.cache
def missing() -> str | None:
    """Say in one line what the machine lacks for these programs, or nothing."""
    compiler = shutil.which("javac")
    if compiler is None or shutil.which("java") is None:
        return f"a Java development kit {_OLDEST_JAVA} or later is not installed (java, javac)"
    answer = subprocess.run([compiler, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r"javac (\d+)", answer.stdout + answer.stderr)
    if found is None or int(found[1]) < _OLDEST_JAVA:
        return f"Java {_OLDEST_JAVA} or later is needed, found {found[1] if found else 'an unknown one'}"
    if shutil.which("mvn") is None:
        return "Maven is not installed (mvn)"
    return None


def build(version: str) -> Path:
    """Build the Maven project for a version unless it is built; return its target directory."""
    target = _PROJECT / "target" / version
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = target / "built-from"
        sources = _sources_digest()
        if not stamp.exists() or stamp.read_text() != sources:
            for made in ("classes", "lib"):
                shutil.rmtree(target / made, ignore_errors=True)
            _run_maven(version)
            shutil.make_archive(str(target / "classes"), "zip", target / "classes")
            _archive_classes(target)
            stamp.write_text(sources)
    return target


def _archive_classes(target: Path) -> None:
    """Write the Java classes of a broker with a client as an archive: programs then start with half the work.

    Only classes of jars are in it, so the own ones are one, too.
    """
    environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    with _workspace() as (home, settings):
        archive = f"-XX:ArchiveClassesAtExit={target / 'classes.jsa'}"
        serve = ["serve", "--store", str(home / "store"), "--settings", str(settings)]
        with subprocess.Popen(
            _command(target, home, (archive,), serve),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
        ) as broker:
            assert broker.stdout is not None
            ready = json.loads(broker.stdout.readline())
            send = ["send", "--name-server", ready["nameServer"], "--broker", ready["broker"], "--kind", "sequence"]
            send += ["--seed", "1", "--count", "10", "--from", "0", "--body", "100"]
            _ended(_command(target, home, (), send))


def _sources_digest() -> str:
    digest = hashlib.sha256(" ".join(_JAVA_OPTIONS).encode())
    for path in [_PROJECT / "pom.xml", *sorted(p for p in (_PROJECT / "src").rglob("*") if p.is_file())]:
        digest.update(str(path.relative_to(_PROJECT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _run_maven(version: str) -> None:
    command = ["mvn", "-q", "-B", "-f", str(_PROJECT / "pom.xml"), f"-Drocketmq.version={version}"]
    command += [f"-Drocketmq.{jar}.version={neighbour}" for jar, neighbour in NEIGHBOURS.get(version, {}).items()]
    if version.startswith(("4.9.", "5.0.")):
        command.append(f"-Prelease-{version[:3]}")
    answer = subprocess.run([*command, "process-classes"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise HarnessError(f"Maven failed for RocketMQ {version}:\n{answer.stdout}{answer.stderr}")


def java_command(
    version: str,
    home: Path,
    words: Sequence[str],
    main_class: str = "sparkmq.broker.Main",
    properties: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the command line of a Java program, which keeps its logs and temporary files below a home."""
    target = build(version)
    own = [f"-D{name}={value}" for name, value in (properties or {}).items()]
    return _command(target, home, (f"-XX:SharedArchiveFile={target / 'classes.jsa'}", *own), words, main_class)


def _command(
    target: Path, home: Path, options: Sequence[str], words: Sequence[str], main_class: str = "sparkmq.broker.Main"
) -> list[str]:
    class_path = f"{target / 'classes.zip'}{os.pathsep}{target / 'lib'}{os.sep}*"
    homes = [f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", f"-Drocketmq.log.root={home}"]
    return ["java", *_JAVA_OPTIONS, *homes, *options, "-cp", class_path, main_class, *words]


@contextlib.contextmanager
def _workspace(settings: Settings | None = None) -> Iterator[tuple[Path, Path]]:
    """Give a scratch directory and the settings as a file."""
    with tempfile.TemporaryDirectory(prefix="broker-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        yield home, _settings_file(settings or {}, home)


def _settings_file(settings: Settings, home: Path) -> Path:
    if isinstance(settings, Path):
        return settings.resolve()
    file = home / "broker.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return file


def copy_store(store: Path, target: Path) -> Path:
    """Copy a store with its file times; the copy can be written even if the store cannot."""
    shutil.copytree(store, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return target


def configure(store: Path, topic: str) -> None:
    """Let a workload configure one more topic: a broker hands out messages of topics that are configured."""
    file = store / "config" / "topics.json"
    topics = json.loads(file.read_text())
    topics["topicConfigTable"][topic] = topics["topicConfigTable"]["OrderEvents"] | {"topicName": topic}
    file.write_text(json.dumps(topics))


def _run(version: str, home: Path, words: Sequence[str], text: str | None = None) -> str:
    """Run a Java program to its end and return what it printed."""
    return _ended(java_command(version, home, words), text=text).stdout


def _ended(
    command: Sequence[str], accepted: int = 0, text: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A Java program that has run to its end, with an exit code of at most ``accepted``."""
    answer = subprocess.run(
        command,
        input=text,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=_RUN_SECONDS,
        check=False,
    )
    if not 0 <= answer.returncode <= accepted:
        raise HarnessError(f"{' '.join(command)} failed:\n{answer.stderr}")
    return answer


class Broker:
    """A name server and a broker of one version on a store directory, in a process of their own.

    As a context manager it starts them and stops them cleanly at the end, unless they were stopped or killed.
    """

    def __init__(
        self,
        version: str,
        store: Path,
        settings: Settings,
        *,
        keeps_ports: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Take the store, whose directory may be empty or missing, the settings, and properties of the Java system.

        With ``keeps_ports``, both have the addresses of their first start at each further one.
        """
        self.keeps_ports = keeps_ports
        self.version = version
        self.properties = properties
        self.store = store
        self.settings = settings
        self.name_server = ""
        self.address = ""
        self._process: subprocess.Popen[str] | None = None
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Broker:
        """Start both."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop both if they still run."""
        self.stop()

    def start(self) -> None:
        """Start both and wait until they answer."""
        home, settings = self._cleanup.enter_context(_workspace(self.settings))
        self.store.mkdir(parents=True, exist_ok=True)
        words = ["serve", "--store", str(self.store), "--settings", str(settings)]
        if self.keeps_ports and self.address:
            ports = (address.rpartition(":")[2] for address in (self.name_server, self.address))
            words += [
                word for pair in zip(("--name-server-port", "--broker-port"), ports, strict=True) for word in pair
            ]
        errors = (home / "errors").open("w+")
        self._cleanup.callback(errors.close)
        process = subprocess.Popen(
            java_command(self.version, home, words, properties=self.properties),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
        )
        self._process = process
        assert process.stdout is not None
        watchdog = threading.Timer(_START_SECONDS, process.kill)
        watchdog.start()
        line = process.stdout.readline()
        watchdog.cancel()
        if not line:
            process.wait()
            errors.seek(0)
            message = errors.read()
            self._finish()
            raise HarnessError(f"the broker {self.version} does not start on {self.store}:\n{message}")
        ready = json.loads(line)
        self.name_server = ready["nameServer"]
        self.address = ready["broker"]

    @property
    def process_id(self) -> int:
        """The id of their process."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Stop both cleanly and wait for their end."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                exit_code = self._process.wait(_STOP_SECONDS)
            finally:
                self.kill()
            if exit_code != 0:
                raise HarnessError(f"the broker {self.version} did not stop cleanly: exit code {exit_code}")

    def kill(self) -> None:
        """End both at once, as ``kill -9`` does, if they still run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._finish()

    def _finish(self) -> None:
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
        self._process = None
        self._cleanup.close()


class Sender:
    """A seeded workload on its way to a broker."""

    def __init__(self, broker: Broker, kind: str, seed: int, count: int, *, first: int = 0, body: int = 100) -> None:
        """Start sending.

        Kinds: ``mixed`` (all that clients can send, besides ``count`` ordinary messages), ``sequence``
        (numbered messages from ``first`` on, whose number decides their queue, with bodies of about ``body``
        bytes), ``last-queue`` (all to one queue), ``half`` (open transactions) and ``burst`` (several
        threads, until the broker is gone).
        """
        self._cleanup = contextlib.ExitStack()
        home, _ = self._cleanup.enter_context(_workspace())
        words = ["send", "--name-server", broker.name_server, "--broker", broker.address, "--kind", kind]
        words += ["--seed", str(seed), "--count", str(count), "--from", str(first), "--body", str(body)]
        self._process = subprocess.Popen(
            java_command(broker.version, home, words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )

    @property
    def is_sending(self) -> bool:
        """Whether the end has not come."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it at once: a sender whose broker is gone tries again for seconds."""
        self._process.kill()
        self._process.communicate()
        self._cleanup.close()

    def wait(self) -> int:
        """Wait for the end and return the number of messages sent."""
        try:
            output, errors = self._process.communicate(timeout=_RUN_SECONDS)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.communicate()
            self._cleanup.close()
        if self._process.returncode != 0:
            raise HarnessError(f"sending failed:\n{output}{errors}")
        return int(json.loads(output)["sent"])


def send(broker: Broker, kind: str, seed: int, count: int, *, first: int = 0, body: int = 100) -> int:
    """Send a workload as :class:`Sender` does and wait for its end; return the number of messages sent."""
    return Sender(broker, kind, seed, count, first=first, body=body).wait()


def consume(broker: Broker, group: str, topic: str, count: int) -> list[dict[str, Any]]:
    """The messages that a consumer group takes from where it was: `count`, or all if there are fewer.

    A real client takes them, and writes the group's new offsets. A message has its `topic`, `queueId`, `queueOffset`,
    `uniqKey`, `properties` and `body`.
    """
    with consuming(broker, group, topic, count) as taken:
        return taken()


@contextlib.contextmanager
def consuming(broker: Broker, group: str, topic: str, count: int) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """A consumer that starts now; gives what waits until it ends, and returns the messages as `consume` does."""
    words = ["consume", "--name-server", broker.name_server, "--group", group, "--topic", topic, "--count", str(count)]
    with _workspace() as (home, _):
        process = subprocess.Popen(
            java_command(broker.version, home, words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )

        def taken() -> list[dict[str, Any]]:
            output, errors = process.communicate(timeout=_RUN_SECONDS)
            if process.returncode != 0:
                raise HarnessError(f"consuming failed:\n{errors}")
            return [json.loads(line) for line in output.splitlines()]

        try:
            yield taken
        finally:
            process.kill()
            process.communicate()


class PullConsumer:
    """A real pull consumer, which reads all messages of a topic as often as it is told. It ends with the context."""

    def __init__(self, broker: Broker, topic: str, most: int) -> None:
        """Start it; ``most`` is how many messages it asks for at once."""
        self._cleanup = contextlib.ExitStack()
        home, _ = self._cleanup.enter_context(_workspace())
        words = ["pull", "--name-server", broker.name_server, "--topic", topic, "--most", str(most)]
        command = java_command(broker.version, home, words)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def __enter__(self) -> PullConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._cleanup.close()

    def read(self) -> tuple[int, int]:
        """Read everything, with a thread for each queue; returns messages, and bytes of bodies."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("read\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise HarnessError("the pull consumer ended")
        answer = json.loads(line)
        return answer["messages"], answer["bodyBytes"]


def append(store: Path, settings: Settings, seed: int, version: str = VERSIONS[0]) -> int:
    """Put messages into a stopped store that no client can send; return their number."""
    store.mkdir(parents=True, exist_ok=True)
    with _workspace(settings) as (home, file):
        words = ["append", "--store", str(store), "--settings", str(file), "--seed", str(seed)]
        return int(json.loads(_run(version, home, words))["messages"])


def describe(store: Path, settings: Settings, out: Path, version: str = VERSIONS[0]) -> None:
    """Write what the Java message store says of a store as JSON lines; the store stays as it is."""
    with _workspace(settings) as (home, file):
        copy = copy_store(store, home / "copy")
        facts = _run(version, home, ["describe", "--store", str(copy), "--settings", str(file)])
        out.write_text(facts, encoding="utf-8")


def facts(store: Path, settings: Settings, version: str = VERSIONS[0]) -> dict[str, list[dict[str, Any]]]:
    """What the Java message store says of a store, by kind; the store stays as it is."""
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        describe(store, settings, Path(folder) / "facts", version)
        for line in (Path(folder) / "facts").read_text(encoding="utf-8").splitlines():
            fact = json.loads(line)
            found.setdefault(fact["t"], []).append(fact)
    return found


def boot_stores(stores: Iterable[tuple[Path, Path]], version: str, seconds: int = 15) -> list[dict[str, Any]]:
    """Boot stores, each with its settings file, by the Java message store in one process, and stop them again.

    Return for each its ``logEnd`` and ``queueEnds`` (by topic and queue id) after the boot, or the ``failure``: also of
    a start that only slept for so many seconds. And what it has logged, as ``log``.
    """
    asked = list(stores)
    with _workspace() as (home, _):
        lines = "".join(json.dumps({"store": str(store), "settings": str(conf)}) + "\n" for store, conf in asked)
        words, logs = ["boots", "--seconds", str(seconds)], {"sparkmq.log.level": "INFO"}
        ended = _ended(java_command(version, home, words, properties=logs), text=lines)
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    for (store, _), answer in zip(asked, answers, strict=True):
        answer["log"] = [line for line in ended.stderr.splitlines() if str(store) in line]
    return answers


def java_rebuild(store: Path, settings: Settings, version: str = VERSIONS[0]) -> dict[str, int]:
    """Rebuild consume queues and index files of a store that has only its commit log, and maybe config.

    Return the number of ``messages``, ``dispatchMilliseconds`` and ``flushMilliseconds``.
    """
    with _workspace(settings) as (home, file):
        answer: dict[str, int] = json.loads(
            _run(version, home, ["rebuild", "--store", str(store), "--settings", str(file)])
        )
        return answer


def check_served(
    store: Path, settings: Settings, index: bool = False, facts: Path | None = None, version: str = VERSIONS[0]
) -> dict[str, Any]:
    """Let a broker serve a copy of a store and check it with real clients; return what was counted.

    Every message of the log must come from its queue, at its offset, and be found by its id; with ``index``
    by its keys, too. New messages must follow behind the old ones. With ``facts`` the log must hold just
    their messages. Raise :class:`ServingError` if anything is wrong.
    """
    with _workspace(settings) as (home, file):
        copy = copy_store(store, home / "copy")
        words = ["check", "--store", str(copy), "--settings", str(file), "--index", str(index).lower()]
        if facts is not None:
            words += ["--facts", str(facts.resolve())]
        answer = _ended(java_command(version, home, words), accepted=1)
        report: dict[str, Any] = json.loads(answer.stdout)
        if answer.returncode == 1:
            raise ServingError(report)
        return report


def mqadmin(broker: Broker, words: Sequence[str]) -> str:
    """What the `mqadmin` of the broker's version prints: a command, and its arguments without the name server.

    It prints nothing if a request was not answered in time, and is then asked again.
    """
    with _workspace() as (home, _):
        command = java_command(broker.version, home, words, "sparkmq.broker.MqAdmin")
        # That of 4.9 prints nothing without a file of settings for its log.
        (home / "conf").mkdir()
        (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
        command += ["-n", broker.name_server]
        said = (_ended(command, ROCKETMQ_HOME=str(home)).stdout for _ in range(3))
        return next(filter(None, said), "")


def at_broker(broker: Broker, program: str, *words: str) -> list[dict[str, Any]]:
    """What the clients of a Java program, such as ``Groups``, did at a broker, and got: a JSON object a line."""
    with _workspace() as (home, _):
        told = [program, "--name-server", broker.name_server, "--broker", broker.address, *words]
        return [json.loads(line) for line in _run(broker.version, home, told).splitlines()]


def answers(program: str, lines: Iterable[str], version: str = VERSIONS[0]) -> list[Any]:
    """What a Java program, such as ``Codec``, answers to each line: a JSON value."""
    with _workspace() as (home, _):
        text = "".join(f"{line}\n" for line in lines)
        return [json.loads(line) for line in _run(version, home, [program], text).split("\n")[:-1]]


def filter_messages(
    questions: Iterable[tuple[str, Sequence[Mapping[str, str]]]], version: str = VERSIONS[0]
) -> list[list[str] | None]:
    """What the SQL92 filter of a version says: for each expression, and each of its messages (their properties).

    An answer is TRUE, FALSE, NULL or ERROR for each message, or None if the expression is refused.
    """
    lines = (json.dumps({"expression": text, "messages": list(many)}) for text, many in questions)
    return answers("filter", lines, version)
