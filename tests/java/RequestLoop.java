import java.io.*;
import java.nio.charset.StandardCharsets;

/**
 * A program that answers one request after the other in one JVM, until stdin ends.
 *
 * A request on stdin is a count and so many strings; the answer on stdout is a number and three strings.  Numbers are
 * big-endian int32, a string is its length in bytes and UTF-8.
 */
abstract class RequestLoop {
    record Answer(int code, byte[] first, byte[] second, byte[] third) {
        Answer(int code, String first, String second, String third) {
            this(code, bytes(first), bytes(second), bytes(third));
        }

        private static byte[] bytes(String text) {
            return text.getBytes(StandardCharsets.UTF_8);
        }
    }

    abstract Answer answer(String[] request) throws Exception;

    void run() throws Exception {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        System.setOut(System.err);
        while (true) {
            int count;
            try {
                count = requests.readInt();
            } catch (EOFException end) {
                return;
            }
            String[] request = new String[count];
            for (int i = 0; i < count; i++)
                request[i] = new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8);
            Answer answer = answer(request);
            answers.writeInt(answer.code);
            for (byte[] text : new byte[][] {answer.first, answer.second, answer.third}) {
                answers.writeInt(text.length);
                answers.write(text);
            }
            answers.flush();
        }
    }
}
