import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Answers one line for each line read, until the input ends. Questions:
 *
 *   message KEY VERSION request|response HEX   the bytes written again: HEX, or "error ..."
 *   headers KEY VERSION                        request and response header version
 *   apis                                       KEY:NAME:OLDEST:NEWEST of every API
 *   errors                                     CODE:NAME:RETRIABLE of every error
 */
public final class Judge {
    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
            out.flush();
        }
    }

    private static String answer(String[] words) {
        switch (words[0]) {
            case "message":
                return message(words);
            case "headers":
                return headers(words);
            case "apis":
                return apis();
            case "errors":
                return errors();
            default:
                return "error unknown question";
        }
    }

    private static String message(String[] words) {
        short version = Short.parseShort(words[2]);
        String stage = "read";
        try {
            ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[1]));
            ApiMessage message = words[3].equals("request") ? type.newRequest() : type.newResponse();
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[4]));
            message.read(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining()) {
                return "error read " + bytes.remaining() + " bytes too many";
            }
            stage = "write";
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer again = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(again), cache, version);
            return "bytes " + HexFormat.of().formatHex(again.array(), 0, again.position());
        } catch (RuntimeException refused) {
            return "error " + stage + " " + refused.toString().replaceAll("\\s+", " ");
        }
    }

    private static String headers(String[] words) {
        ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[1]));
        short version = Short.parseShort(words[2]);
        return type.requestHeaderVersion(version) + " " + type.responseHeaderVersion(version);
    }

    private static String apis() {
        StringBuilder text = new StringBuilder();
        for (ApiKeys key : ApiKeys.values()) {
            text.append(key.id).append(':').append(key.name()).append(':').append(key.oldestVersion());
            text.append(':').append(key.latestVersion()).append(' ');
        }
        return text.toString().trim();
    }

    private static String errors() {
        StringBuilder text = new StringBuilder();
        for (Errors error : Errors.values()) {
            text.append(error.code()).append(':').append(error.name()).append(':');
            text.append(error.exception() instanceof RetriableException).append(' ');
        }
        return text.toString().trim();
    }
}
