package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"lockstep/compat/line"
)

const firstContactTime = 2 * time.Second

var algorithms = map[string]scram.Algorithm{"SCRAM-SHA-256": scram.SHA256, "SCRAM-SHA-512": scram.SHA512}

// mechanism is nil where nobody logs in.
func mechanism(ask *line.Ask) sasl.Mechanism {
	login := ask.Login()
	if login.Mechanism == "" {
		return nil
	}
	if login.Mechanism == "PLAIN" {
		return plain.Mechanism{Username: login.Username, Password: login.Password}
	}
	made, err := scram.Mechanism(algorithms[login.Mechanism], login.Username, login.Password)
	if err != nil {
		panic(err)
	}
	return made
}

// newTransport is for a Writer or a Client, newDialer for its Reader and its ConsumerGroup.
func newTransport(ask *line.Ask) *kafka.Transport {
	return &kafka.Transport{TLS: ask.TLS(), SASL: mechanism(ask)}
}

func newDialer(ask *line.Ask) *kafka.Dialer {
	dialer := *kafka.DefaultDialer
	dialer.TLS, dialer.SASLMechanism = ask.TLS(), mechanism(ask)
	return &dialer
}

// firstContact is a new client's first question, answered or given up soon.
func firstContact(ask *line.Ask) (any, error) {
	client, end := newClient(ask)
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), firstContactTime)
	defer cancel()
	_, err := client.Metadata(ctx, &kafka.MetadataRequest{})
	return nil, err
}
