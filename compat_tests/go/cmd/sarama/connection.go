package main

import (
	"crypto/sha256"
	"crypto/sha512"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"lockstep/compat/line"
)

var hashes = map[string]scram.HashGeneratorFcn{"SCRAM-SHA-256": sha256.New, "SCRAM-SHA-512": sha512.New}

// newConfig is sarama's default, and how the broker is reached.
func newConfig(ask *line.Ask) *sarama.Config {
	config := sarama.NewConfig()
	config.Net.TLS.Config = ask.TLS()
	config.Net.TLS.Enable = config.Net.TLS.Config != nil
	login := ask.Login()
	if login.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(login.Mechanism)
		config.Net.SASL.User = login.Username
		config.Net.SASL.Password = login.Password
		config.Net.SASL.TokenProvider = token(login.Token)
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &conversation{hash: hashes[login.Mechanism]}
		}
	}
	return config
}

// conversation is the SCRAM client that sarama leaves to its user.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(username, password, authorization string) error {
	client, err := c.hash.NewClient(username, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// firstContact is a new client's first question, answered or given up soon.
func firstContact(ask *line.Ask) (any, error) {
	config := newConfig(ask)
	config.Metadata.Retry.Max = 0
	client, err := sarama.NewClient(addresses(ask), config)
	if err != nil {
		return nil, err
	}
	return nil, client.Close()
}
