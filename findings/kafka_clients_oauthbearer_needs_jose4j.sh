#!/usr/bin/env bash
# kafka-clients 4.3.1 and 4.4.0: a client that logs in by OAUTHBEARER cannot be made without jose4j, a library for what only a broker does.
#
# Expected, as with 3.9.2: a client reads its token with Jackson, and only a broker, which verifies tokens, needs jose4j. Seen: the client is not made, a class of jose4j is
# missing, before it connects. Neither library is among the dependencies that Maven copies with kafka-clients. No broker is needed to see it.
. "$(dirname "$0")/lib.sh"

cat >"$WORK/Login.java" <<'PROGRAM'
import java.util.*;
import org.apache.kafka.clients.admin.*;

public class Login {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", arguments[0]);
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", "127.0.0.1:1");
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", "OAUTHBEARER");
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;");
        settings.put("sasl.login.callback.handler.class", arguments[1]);
        settings.put("sasl.oauthbearer.token.endpoint.url", arguments[0]);
        String seen = "made";
        try {
            Admin.create(settings).close();
        } catch (Throwable error) {
            while (error.getCause() != null) error = error.getCause();
            seen = error.getClass().getSimpleName() + " " + error.getMessage();
        }
        System.out.println(seen);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
PROGRAM
# A token as an issuer makes it; its signature is the broker's matter.
python3 - >"$WORK/token" <<'PROGRAM'
import base64, json, time
part = lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
print(part({"alg": "RS256", "kid": "k"}), part({"sub": "alice", "scope": "s", "iat": int(time.time()), "exp": int(time.time()) + 600}), part("s"), sep=".", end="")
PROGRAM
HANDLER=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler

# seen NAME HANDLER ARTIFACT...: what making the client ends with.
seen() {
    local name=$1 handler=$2
    shift 2
    maven_jars "$WORK/$name" "$@"
    mkdir -p "$WORK/$name/classes"
    javac -cp "$WORK/$name/*" -d "$WORK/$name/classes" "$WORK/Login.java"
    java -Xmx128m -cp "$WORK/$name/classes:$WORK/$name/*" Login "file://$WORK/token" "$handler" 2>/dev/null | tail -1
}

JACKSON=com.fasterxml.jackson.core:jackson-databind:2.18.2
JOSE4J=org.bitbucket.b_c:jose4j:0.9.6

expect "kafka-clients 3.9.2 with Jackson" "$(seen old "$HANDLER" org.apache.kafka:kafka-clients:3.9.2 "$JACKSON")" "made"
for version in 4.3.1 4.4.0; do
    CLIENT="org.apache.kafka:kafka-clients:$version"
    expect "kafka-clients $version alone" "$(seen "alone-$version" "$HANDLER" "$CLIENT")" "ClassNotFoundException com.fasterxml.jackson.databind.ObjectMapper"
    expect "kafka-clients $version with Jackson" "$(seen "jackson-$version" "$HANDLER" "$CLIENT" "$JACKSON")" \
        "ClassNotFoundException org.jose4j.keys.resolvers.VerificationKeyResolver"
    expect "kafka-clients $version with both" "$(seen "both-$version" "$HANDLER" "$CLIENT" "$JACKSON" "$JOSE4J")" "made"
done
