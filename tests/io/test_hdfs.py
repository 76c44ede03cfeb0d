"""Errors of the client for HDFS, as it words them, and what people read."""

from __future__ import annotations

import pytest

from spark_mq.io.hdfs import _os_error


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (
            r'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: user=stranger, '
            r'access=READ, inode=\"/a/g\":root:supergroup:-rw-------\n\tat org.apache.hadoop.hdfs.server")',
            PermissionError,
            'Permission denied: user=stranger, access=READ, inode="/a/g":root:supergroup:-rw-------',
        ),
        (
            r'RPCError("org.apache.hadoop.security.AccessControlException", "/a/empty (is not a directory)\n\tat org")',
            NotADirectoryError,
            "/a/empty (is not a directory)",
        ),
        (
            r'RPCError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "The DiskSpace quota of /a is '
            r'exceeded\n\tat org")',
            OSError,
            "Disk quota exceeded: The DiskSpace quota of /a is exceeded",
        ),
        (
            'DataTransferError("All DataNodes failed: [DatanodeInfoProto { id: DatanodeIdProto { port: 1 } }]")',
            OSError,
            "All DataNodes failed",
        ),
        ('InvalidArgument("No fs.defaultFS setting found")', OSError, "No fs.defaultFS setting found"),
        ("UrlParseError(InvalidPort)", OSError, "UrlParseError(InvalidPort)"),
    ],
)
def test_an_error_is_one_line_of_its_kind(text: str, kind: type[OSError], expected: str) -> None:
    error = _os_error(text)
    assert type(error) is kind
    assert str(error) == expected
