package sparkmq.broker;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** MD5 as the facts have it: lower-case hexadecimal. */
final class Digest {
    private Digest() {
    }

    static String md5(byte[] bytes) {
        try {
            byte[] content = bytes == null ? new byte[0] : bytes;
            return HexFormat.of().formatHex(MessageDigest.getInstance("MD5").digest(content));
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
