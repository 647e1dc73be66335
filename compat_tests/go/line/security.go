package line

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"strings"
)

// Login is how a client logs in; an empty Mechanism: not at all.
type Login struct {
	Mechanism string
	Username  string
	Password  string
	Token     string
}

// Login is what the settings say of it.
func (a *Ask) Login() Login {
	login := Login{
		Mechanism: a.Settings["sasl.mechanism"], Username: a.Settings["sasl.username"], Password: a.Settings["sasl.password"],
	}
	if path, given := a.Settings["sasl.oauthbearer.token.file"]; given {
		login.Token = string(contents(path))
	}
	return login
}

// TLS is nil on a listener without.
func (a *Ask) TLS() *tls.Config {
	if !strings.HasSuffix(a.Settings["security.protocol"], "ssl") {
		return nil
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(contents(a.Settings["ssl.ca.location"]))
	if path, given := a.Settings["ssl.certificate.location"]; given {
		pair, err := tls.LoadX509KeyPair(path, a.Settings["ssl.key.location"])
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// Connection names the broker and how it is reached: what serves one question serves every other with the same.
func (a *Ask) Connection() string {
	var pairs []string
	for name, value := range a.Settings {
		prefix, _, _ := strings.Cut(name, ".")
		if slices.Contains([]string{"bootstrap", "security", "ssl", "sasl"}, prefix) {
			pairs = append(pairs, name+"="+value)
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

func contents(path string) []byte {
	found, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return found
}
