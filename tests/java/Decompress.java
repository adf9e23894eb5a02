import java.io.*;
import java.nio.ByteBuffer;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.utils.BufferSupplier;

/**
 * Decompresses streams with Kafka's own readers, many in one JVM.
 *
 * A request on stdin is codec, magic and length (big-endian int32) and the stream; the answer on stdout is a byte (1:
 * read to its end), a length and the content, or what was thrown.
 */
public class Decompress {
    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (true) {
            int codec;
            try {
                codec = in.readInt();
            } catch (EOFException end) {
                return;
            }
            int magic = in.readInt();
            byte[] data = new byte[in.readInt()];
            in.readFully(data);
            byte[] result;
            boolean good = true;
            try (InputStream stream = Compression.of(CompressionType.forId(codec)).build()
                    .wrapForInput(ByteBuffer.wrap(data), (byte) magic, BufferSupplier.NO_CACHING)) {
                result = stream.readAllBytes();
            } catch (Throwable problem) {
                good = false;
                result = problem.toString().getBytes("UTF-8");
            }
            out.writeBoolean(good);
            out.writeInt(result.length);
            out.write(result);
            out.flush();
        }
    }
}
