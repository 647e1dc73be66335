package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/compat/line"
)

var errNotCommitted = errors.New("the session aborted instead of committing")

// transactional is a producer, and with a source franz-go's session of a group member: that one puts its positions into
// every transaction that it commits.
type transactional struct {
	client  *kgo.Client
	session *kgo.GroupTransactSession
}

func (d *driver) transactions(answers line.Answers) {
	answers["tx_open"] = d.txOpen
	answers["tx_begin"] = func(ask *line.Ask) (any, error) { return nil, d.open.Get(ask.Producer).begin() }
	answers["tx_send"] = func(ask *line.Ask) (any, error) { return d.open.Get(ask.Producer).send(ask) }
	answers["tx_poll"] = func(ask *line.Ask) (any, error) {
		return polled(d.open.Get(ask.Producer).client, ask.Count, ask.Timeout())
	}
	answers["tx_positions"] = func(*line.Ask) (any, error) { return nil, nil }
	answers["tx_commit"] = func(ask *line.Ask) (any, error) { return nil, d.open.Get(ask.Producer).end(kgo.TryCommit) }
	answers["tx_abort"] = func(ask *line.Ask) (any, error) { return nil, d.open.Get(ask.Producer).end(kgo.TryAbort) }
	answers["tx_close"] = func(ask *line.Ask) (any, error) {
		d.open.Take(ask.Producer).client.Close()
		return nil, nil
	}
}

func (d *driver) txOpen(ask *line.Ask) (any, error) {
	options := append(connection(ask),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID(ask.Settings["transactional.id"]),
	)
	ask.Millis("transaction.timeout.ms", func(t time.Duration) { options = append(options, kgo.TransactionTimeout(t)) })
	opened := &transactional{}
	var err error
	if group, given := ask.Settings["group.id"]; given {
		options = append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(ask.Topics...), kgo.RequireStableFetchOffsets(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		if opened.session, err = kgo.NewGroupTransactSession(options...); err == nil {
			opened.client = opened.session.Client()
		}
	} else {
		opened.client, err = kgo.NewClient(options...)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := limited()
	defer cancel()
	if _, _, err := opened.client.ProducerID(ctx); err != nil { // it asks for one when it is first needed
		return nil, err
	}
	return d.open.Add(opened), nil
}

func (t *transactional) begin() error {
	if t.session != nil {
		return t.session.Begin()
	}
	return t.client.BeginTransaction()
}

func (t *transactional) send(ask *line.Ask) (any, error) {
	ctx, cancel := limited()
	defer cancel()
	records := recordsOf(ask.Topic, ask.Messages)
	if err := t.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	return offsetsOf(records), nil
}

func (t *transactional) end(how kgo.TransactionEndTry) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if t.session == nil {
		return t.client.EndTransaction(ctx, how)
	}
	committed, err := t.session.End(ctx, how)
	if err == nil && how == kgo.TryCommit && !committed {
		err = errNotCommitted
	}
	return err
}
