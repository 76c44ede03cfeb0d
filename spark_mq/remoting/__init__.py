"""RocketMQ's remoting protocol: commands as bytes, and a client that reads from name servers and brokers.

The data's way: `codes` (names of requests and responses) ─▶ `command` (a command and its bytes) ─▶ `connection` (one
TCP connection) ─▶ `client` (connections to all brokers, and what is sent again) ─▶ `requests` (one function a request)
─▶ `pull` (the messages of a queue). `access` is what a broker wants to see of a client: signatures and TLS. Nothing
here needs Spark or numba.
"""

from spark_mq.remoting.command import RemotingCommand, decode, decode_frames, encode

__all__ = ["RemotingCommand", "decode", "decode_frames", "encode"]
