import java.io.*;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs a tool's main many times in one JVM: DumpMany CLASS.
 *
 * A request is its arguments.  The answer is an exit code, what the tool wrote to System.out, what it wrote to
 * System.err, and the exception that ended it (empty if none did).
 */
public class DumpMany extends RequestLoop {
    static class Left extends Error {
        final int code;

        Left(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    final Method tool;

    DumpMany(String name) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new Left(code); });
        Exit.setHaltProcedure((code, message) -> { throw new Left(code); });
        tool = Class.forName(name).getMethod("main", String[].class);
    }

    public static void main(String[] given) throws Exception {
        new DumpMany(given[0]).run();
    }

    Answer answer(String[] arguments) throws Exception {
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
        return new Answer(code, out.toByteArray(), err.toByteArray(), died.getBytes(StandardCharsets.UTF_8));
    }
}
