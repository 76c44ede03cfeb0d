"""What a broker wants to know of a client: the signature of requests (ACL), and TLS."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
from dataclasses import dataclass, field, replace

from spark_mq.errors import OptionError
from spark_mq.remoting.codes import RequestCode
from spark_mq.remoting.command import RemotingCommand

ACCESS_KEY, SECURITY_TOKEN, SIGNATURE = "AccessKey", "SecurityToken", "Signature"
RIGHTS = {
    RequestCode.SEND_MESSAGE_V2: "Pub",
    RequestCode.SEND_BATCH_MESSAGE: "Pub",
    **dict.fromkeys(
        (
            RequestCode.PULL_MESSAGE,
            RequestCode.QUERY_MESSAGE,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
        ),
        "Sub",
    ),
}
"""The rights that ACL 2.0 demands for requests, on topic and group (`RocketMQAction`@5.5.0); for others it is Get."""


@dataclass(frozen=True)
class Credentials:
    """The keys of a user: of ACL 1.0 (`plain_acl.yml`), or a user's name and password in 5.3 and later."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, command: RemotingCommand) -> RemotingCommand:
        """The request with the fields of its signature (`AclClientRPCHook.doBeforeRequest`@4.9.7 and 5.5.0)."""
        fields = dict(command.ext_fields) | {ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        fields.pop(SIGNATURE, None)
        signed = "".join(fields[name] for name in sorted(fields))
        content = signed.encode("utf-8", "replace") + command.body
        digest = hmac.new(self.secret_key.encode("utf-8", "replace"), content, hashlib.sha1).digest()
        fields[SIGNATURE] = base64.b64encode(digest).decode("ascii")
        return replace(command, ext_fields=fields)


def _no_password() -> str:
    """An error, where OpenSSL would ask on the terminal, once for each connection."""
    raise OSError("the key has a password; `openssl pkey -in KEY -out NEW` writes it without one")


@dataclass(frozen=True)
class Tls:
    """How connections are encrypted.

    Attributes:
        ca_file: The certificates of the authorities that are trusted; None for those of this machine.
        certificate: The file of the client's certificate, for a broker that asks for one.
        key: The file of its key, without a password.
        verifies: Whether the broker's certificate has to be of a trusted authority. Names of hosts are not compared,
            because brokers are reached by the IP address that the name server knows.
    """

    ca_file: str | None = None
    certificate: str | None = None
    key: str | None = None
    verifies: bool = True

    def context(self) -> ssl.SSLContext:
        """The settings for a connection. Raises `OptionError` if a file has no certificate or key."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        try:
            if not self.verifies:
                context.verify_mode = ssl.CERT_NONE
            elif self.ca_file is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(self.ca_file)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, _no_password)
        except OSError as error:  # ssl.SSLError is one
            files = ", ".join(file for file in (self.ca_file, self.certificate, self.key) if file is not None)
            raise OptionError(f"TLS: {files}: {error}: give PEM files that can be read") from error
        return context
