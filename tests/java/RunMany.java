import java.io.*;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main of Kafka's tools many times in one JVM.
 *
 * A request is a class and the arguments of its main.  The answer is an exit code, what the tool wrote to System.out, what it wrote to
 * System.err, and the exception that ended it (empty if none did).
 */
public class RunMany extends RequestLoop {
    static class Left extends Error {
        final int code;

        Left(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] given) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new Left(code); });
        Exit.setHaltProcedure((code, message) -> { throw new Left(code); });
        Exit.setShutdownHookAdder((name, hook) -> { }); // they are for a tool that ends with its JVM
        new RunMany().run();
    }

    Answer answer(String[] request) throws Exception {
        Method tool = Class.forName(request[0]).getMethod("main", String[].class);
        String[] arguments = Arrays.copyOfRange(request, 1, request.length);
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
