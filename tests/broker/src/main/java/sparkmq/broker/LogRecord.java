package sparkmq.broker;

import java.nio.ByteBuffer;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A record of the commit log as it lies there; an end-of-segment filler has no message.
 *
 * @param offset  global offset of the first byte
 * @param bytes   the record's bytes; of a filler only its 8 bytes of header
 * @param size    length on disk
 * @param message what the Java decoder makes of it, or null
 */
record LogRecord(long offset, byte[] bytes, int size, MessageExt message) {
    private static final int QUEUE_OFFSET_POSITION = 20;
    private static final int PHYSICAL_OFFSET_POSITION = 28;
    private static final int SYSTEM_FLAG_POSITION = 36;
    private static final int TRANSACTION_MASK = 0xC;
    private static final int COMMIT = 0x8;
    private static final int ROLLBACK = 0xC;

    boolean isBlank() {
        return message == null;
    }

    int magic() {
        return ByteBuffer.wrap(bytes).getInt(4);
    }

    long queueOffset() {
        return ByteBuffer.wrap(bytes).getLong(QUEUE_OFFSET_POSITION);
    }

    long physicalOffsetField() {
        return ByteBuffer.wrap(bytes).getLong(PHYSICAL_OFFSET_POSITION);
    }

    /** The system flag as stored; some decoders clear its compression bit. */
    int systemFlag() {
        return ByteBuffer.wrap(bytes).getInt(SYSTEM_FLAG_POSITION);
    }

    /** Whether consumers get to see it: prepared and rolled back messages are in no queue. */
    boolean isInQueue() {
        int type = systemFlag() & TRANSACTION_MASK;
        return type == 0 || type == COMMIT;
    }

    /** Whether its keys find it: those of rolled back messages are not indexed. */
    boolean isIndexed() {
        return (systemFlag() & TRANSACTION_MASK) != ROLLBACK;
    }

    /** Length of the body as stored, compressed or not. */
    int storedBodyLength() {
        int bornHost = (systemFlag() & 0x10) == 0 ? 8 : 20;
        int storeHost = (systemFlag() & 0x20) == 0 ? 8 : 20;
        return ByteBuffer.wrap(bytes).getInt(48 + bornHost + 8 + storeHost + 4 + 8);
    }
}
