import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;

/** Takes the lock of a store directory with the call that a broker makes, says so, and keeps it until its input ends. */
public class HoldLock {
    public static void main(String[] arguments) throws Exception {
        try (RandomAccessFile file = new RandomAccessFile(arguments[0], "rw")) {
            FileLock lock = file.getChannel().tryLock(0, 1, false);
            if (lock == null) {
                System.out.println("refused");
                return;
            }
            file.getChannel().write(ByteBuffer.wrap("lock".getBytes(StandardCharsets.UTF_8)));
            System.out.println("held");
            System.in.read();
        }
    }
}
