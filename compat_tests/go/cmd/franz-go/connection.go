package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"lockstep/compat/line"
)

const firstContactTime = 2 * time.Second

// connection is where the broker is and how it is reached.
func connection(ask *line.Ask) []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(ask.Servers()...)}
	if config := ask.TLS(); config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	login := ask.Login()
	switch login.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: login.Username, Pass: login.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		auth := scram.Auth{User: login.Username, Pass: login.Password}
		options = append(options, kgo.SASL(auth.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		auth := scram.Auth{User: login.Username, Pass: login.Password}
		options = append(options, kgo.SASL(auth.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: login.Token}.AsMechanism()))
	}
	return options
}

// firstContact is a new client's first question, answered or given up soon.
func firstContact(ask *line.Ask) (any, error) {
	client, err := kgo.NewClient(append(connection(ask), kgo.RequestRetries(0), kgo.RetryTimeout(firstContactTime))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*firstContactTime)
	defer cancel()
	_, err = kadm.NewClient(client).ListTopics(ctx)
	return nil, err
}
