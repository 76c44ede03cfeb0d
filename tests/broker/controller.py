"""A controller of replicas and a name server, each in a process of its own (`enableControllerMode`)."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

from tests.broker import harness
from tests.support.own_servers import free_ports, wait_until_it_listens

_SECONDS = 60.0
_CONTROLLER = "org.apache.rocketmq.controller.ControllerStartup"
_NAME_SERVER = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BEAT = {
    "brokerHeartbeatInterval": "500",
    "controllerHeartBeatTimeoutMills": "3000",
    "sendHeartbeatTimeoutMillis": "1000",
}
"""A broker that is killed is noticed within seconds."""


class Controller:
    """Both servers of one version. A replica that is not in sync can become the master."""

    def __init__(self, version: str, folder: Path) -> None:
        self._version, self._folder, self._servers = version, folder, ExitStack()
        self._port, self._name_server_port = free_ports(2)

    def settings(self) -> dict[str, str]:
        """The settings of a broker that is one of its replicas."""
        return {
            **_BEAT,
            "allAckInSyncStateSet": "true",
            "autoCreateTopicEnable": "true",
            "brokerRole": "SYNC_MASTER",
            "checkSyncStateSetPeriod": "1000",
            "controllerAddr": f"127.0.0.1:{self._port}",
            "enableControllerMode": "true",
            "namesrvAddr": f"127.0.0.1:{self._name_server_port}",
            "syncBrokerMetadataPeriod": "1000",
        }

    def __enter__(self) -> Controller:
        own = {
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-127.0.0.1:{self._port}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(self._folder / "controller"),
            "enableElectUncleanMaster": "true",
            "listenPort": str(self._port),
            "scanNotActiveBrokerInterval": "1000",
        }
        self._start(_NAME_SERVER, self._name_server_port, {"listenPort": str(self._name_server_port)})
        self._start(_CONTROLLER, self._port, own)
        return self

    def __exit__(self, *error: object) -> None:
        self._servers.close()

    def _start(self, main_class: str, port: int, settings: dict[str, str]) -> None:
        home = self._folder / main_class.rpartition(".")[2]
        home.mkdir(parents=True)
        (home / "conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        words, properties = ["-c", str(home / "conf")], {"rocketmq.home.dir": str(home)}
        log = self._servers.enter_context((home / "log").open("w"))
        command = harness.java_command(self._version, home, words, main_class, properties)
        process = subprocess.Popen(command, stdout=log, stderr=log)
        self._servers.callback(process.wait, 30)
        self._servers.callback(process.kill)
        wait_until_it_listens(process, port, home / "log", _SECONDS)
