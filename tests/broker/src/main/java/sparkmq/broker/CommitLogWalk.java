package sparkmq.broker;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Reads a commit log from its files, record by record, with the Java message decoder. */
final class CommitLogWalk {
    private static final int BLANK_MAGIC = 0xCBD43194;
    private static final int MESSAGE_MAGIC = 0xDAA320A7;
    private static final int LONG_TOPIC_MAGIC = 0xDAA320AB;
    private static final int BODY_CRC_POSITION = 8;

    private CommitLogWalk() {
    }

    /** The records of a commit log directory from its first segment to the first bytes that are no valid record. */
    static List<LogRecord> records(Path commitLog) throws IOException {
        List<LogRecord> records = new ArrayList<>();
        for (Path segment : segments(commitLog)) {
            if (!readSegment(segment, records)) {
                break;
            }
        }
        return records;
    }

    private static List<Path> segments(Path commitLog) throws IOException {
        try (Stream<Path> files = Files.list(commitLog)) {
            return files.filter(Files::isRegularFile).sorted().toList();
        }
    }

    /** Adds a segment's records; says whether the segment ends with a filler, that is, whether the log goes on. */
    private static boolean readSegment(Path segment, List<LogRecord> records) throws IOException {
        long firstOffset = Long.parseLong(segment.getFileName().toString());
        ByteBuffer buffer = ByteBuffer.wrap(Files.readAllBytes(segment));
        while (buffer.remaining() >= 8) {
            int position = buffer.position();
            int size = buffer.getInt(position);
            int magic = buffer.getInt(position + 4);
            if (magic == BLANK_MAGIC) {
                records.add(new LogRecord(firstOffset + position, bytes(buffer, position, 8), size, null));
                return true;
            }
            boolean known = magic == MESSAGE_MAGIC || magic == LONG_TOPIC_MAGIC;
            if (!known || size < 8 || size > buffer.remaining()) {
                return false;
            }
            LogRecord record = decode(firstOffset + position, bytes(buffer, position, size));
            if (record == null) {
                return false;
            }
            records.add(record);
            buffer.position(position + size);
        }
        return false;
    }

    private static byte[] bytes(ByteBuffer buffer, int position, int size) {
        byte[] bytes = new byte[size];
        buffer.get(position, bytes);
        return bytes;
    }

    private static LogRecord decode(long offset, byte[] bytes) {
        MessageExt stored = MessageDecoder.decode(ByteBuffer.wrap(bytes), true, false);
        if (stored == null) {
            return null;
        }
        byte[] body = stored.getBody() == null ? new byte[0] : stored.getBody();
        CRC32 checksum = new CRC32();
        checksum.update(body);
        int expected = body.length == 0 ? 0 : (int) (checksum.getValue() & 0x7FFFFFFF);
        if (ByteBuffer.wrap(bytes).getInt(BODY_CRC_POSITION) != expected) {
            return null;
        }
        return new LogRecord(offset, bytes, bytes.length, MessageDecoder.decode(ByteBuffer.wrap(bytes), true, true));
    }
}
