import java.io.*;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs a tool's main many times in one JVM: DumpMany CLASS.
 *
 * A request on stdin is a count and so many strings; the answer on stdout is an exit code and three strings: what
 * the tool wrote to System.out, what it wrote to System.err, and the exception that ended it (empty if none did).
 * Numbers are big-endian int32, a string is its length in bytes and UTF-8.
 */
public class DumpMany {
    static class Left extends Error {
        final int code;

        Left(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] given) throws Exception {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        Exit.setExitProcedure((code, message) -> { throw new Left(code); });
        Exit.setHaltProcedure((code, message) -> { throw new Left(code); });
        Method tool = Class.forName(given[0]).getMethod("main", String[].class);
        while (true) {
            int count;
            try {
                count = requests.readInt();
            } catch (EOFException end) {
                return;
            }
            String[] arguments = new String[count];
            for (int i = 0; i < count; i++)
                arguments[i] = new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8);
            ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, false, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, false, StandardCharsets.UTF_8));
            int code = 0;
            String died = "";
            try {
                tool.invoke(null, (Object) arguments);
            } catch (InvocationTargetException wrapper) {
                code = 1;
                if (wrapper.getCause() instanceof Left left)
                    code = left.code;
                else
                    died = wrapper.getCause().toString();
            }
            System.out.flush();
            System.err.flush();
            answers.writeInt(code);
            for (byte[] text : new byte[][] {out.toByteArray(), err.toByteArray(), died.getBytes(StandardCharsets.UTF_8)}) {
                answers.writeInt(text.length);
                answers.write(text);
            }
            answers.flush();
        }
    }
}
