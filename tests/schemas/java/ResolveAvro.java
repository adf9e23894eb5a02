import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.io.JsonEncoder;

/**
 * For each line of stdin (a writer schema, a reader schema, a value in hex, with tabs between) the value that Avro's own
 * resolution makes, as Avro's JSON; "schema" for a schema that Avro refuses, "error" for a value that does not resolve.
 */
public class ResolveAvro {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split("\t", -1);
            out.println(answer(words[0], words[1], HexFormat.of().parseHex(words[2])));
        }
        out.flush();
    }

    static String answer(String writer, String reader, byte[] value) {
        Schema wrote, reads;
        try {
            wrote = parse(writer);
            reads = parse(reader);
        } catch (RuntimeException error) {
            return "schema";
        }
        try {
            Object found = new GenericDatumReader<>(wrote, reads).read(null, DecoderFactory.get().binaryDecoder(value, null));
            ByteArrayOutputStream json = new ByteArrayOutputStream();
            JsonEncoder encoder = EncoderFactory.get().jsonEncoder(reads, json);
            new GenericDatumWriter<Object>(reads).write(found, encoder);
            encoder.flush();
            return json.toString(StandardCharsets.UTF_8).replace("\n", "").replace("\r", "");
        } catch (Exception error) {
            return "error " + error.toString().replace("\n", " ");
        }
    }

    static Schema parse(String text) {
        return new Schema.Parser(NameValidator.NO_VALIDATION).setValidateDefaults(true).parse(text);
    }
}
