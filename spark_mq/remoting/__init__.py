"""RocketMQ's remoting protocol: commands as bytes, and a client that reads from name servers and brokers.

- `codes`: the names of requests and responses
- `command`: a command, and its bytes
- `access`: what a broker wants to see of a client: signatures and TLS
- `client`: connections to all brokers, and what is sent again
- `requests`: one function for each request that only reads
- `pull`: the messages of a queue
- `writes`: the requests that change something in a broker

Nothing here needs Spark or numba.
"""

from spark_mq.remoting.command import RemotingCommand, decode, decode_frames, encode

__all__ = ["RemotingCommand", "decode", "decode_frames", "encode"]
