package main

import (
	"time"

	"github.com/IBM/sarama"

	"lockstep/compat/line"
)

// transactional is a producer, and with a source a member of that source's group.
type transactional struct {
	producer sarama.SyncProducer
	source   *member
	group    string
	last     map[int32]*sarama.ConsumerMessage
}

func (d *driver) transactions(answers line.Answers) {
	answers["tx_open"] = d.txOpen
	answers["tx_begin"] = func(ask *line.Ask) (any, error) { return nil, d.open.Get(ask.Producer).producer.BeginTxn() }
	answers["tx_send"] = func(ask *line.Ask) (any, error) {
		messages := messagesOf(ask.Topic, ask.Messages)
		if err := d.open.Get(ask.Producer).producer.SendMessages(messages); err != nil {
			return nil, err
		}
		return offsetsOf(messages), nil
	}
	answers["tx_poll"] = func(ask *line.Ask) (any, error) { return d.open.Get(ask.Producer).poll(ask) }
	answers["tx_positions"] = func(ask *line.Ask) (any, error) { return nil, d.open.Get(ask.Producer).sendPositions() }
	answers["tx_commit"] = func(ask *line.Ask) (any, error) { return nil, d.open.Get(ask.Producer).producer.CommitTxn() }
	answers["tx_abort"] = func(ask *line.Ask) (any, error) { return nil, d.open.Get(ask.Producer).producer.AbortTxn() }
	answers["tx_close"] = func(ask *line.Ask) (any, error) {
		d.open.Take(ask.Producer).close()
		return nil, nil
	}
}

func (d *driver) txOpen(ask *line.Ask) (any, error) {
	config := newConfig(ask)
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = ask.Settings["transactional.id"]
	ask.Millis("transaction.timeout.ms", func(t time.Duration) { config.Producer.Transaction.Timeout = t })
	producer, err := sarama.NewSyncProducer(addresses(ask), config)
	if err != nil {
		return nil, err
	}
	opened := &transactional{producer: producer, last: map[int32]*sarama.ConsumerMessage{}}
	if group, given := ask.Settings["group.id"]; given {
		ask.Settings["auto.offset.reset"] = "earliest"
		ask.Settings["isolation.level"] = "read_committed"
		opened.group = group
		if opened.source, err = joinedGroup(ask); err != nil {
			return nil, err
		}
	}
	return d.open.Add(opened), nil
}

func (t *transactional) poll(ask *line.Ask) (any, error) {
	got, err := line.Gather(t.source.records, t.source.failed, ask.Count, ask.Timeout())
	if err != nil {
		return nil, err
	}
	found := []line.Stored{}
	for _, each := range got {
		t.last[each.record.Partition] = each.record
		found = append(found, stored(each.record))
	}
	return found, nil
}

func (t *transactional) sendPositions() error {
	for _, each := range t.last {
		if err := t.producer.AddMessageToTxn(each, t.group, nil); err != nil {
			return err
		}
	}
	return nil
}

func (t *transactional) close() {
	if t.source != nil {
		t.source.close()
	}
	_ = t.producer.Close()
}
