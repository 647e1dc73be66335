package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"lockstep/compat/line"
)

const joinAgain = 200 * time.Millisecond

var strategies = map[string]func() sarama.BalanceStrategy{
	"range":              sarama.NewBalanceStrategyRange,
	"roundrobin":         sarama.NewBalanceStrategyRoundRobin,
	"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky,
}

type claimed struct {
	record  *sarama.ConsumerMessage
	session sarama.ConsumerGroupSession
}

// member is sarama's handler of one consumer group, and what it was handed.
type member struct {
	group   sarama.ConsumerGroup
	records chan claimed
	failed  chan error
	session chan sarama.ConsumerGroupSession // holds the live one, if any
	owned   *line.Assignment
	leave   context.CancelFunc
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.session <- session
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	<-m.session
	return nil
}

// ConsumeClaim runs from assignment to revocation, which it must notice while nobody polls: it reads ahead.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	partition := map[string][]int32{claim.Topic(): {claim.Partition()}}
	m.owned.Add(partition)
	defer m.owned.Remove(partition)
	var ahead []claimed
	for {
		var next claimed
		var out chan<- claimed // nil, which never is ready, while there is nothing to hand out
		if len(ahead) > 0 {
			next, out = ahead[0], m.records
		}
		select {
		case record, more := <-claim.Messages():
			if !more {
				return nil
			}
			ahead = append(ahead, claimed{record, session})
		case out <- next:
			ahead = ahead[1:]
		case <-session.Context().Done():
			return nil
		}
	}
}

func (d *driver) join(ask *line.Ask) (any, error) {
	joined, err := joinedGroup(ask)
	if err != nil {
		return nil, err
	}
	return d.members.Add(joined), nil
}

func joinedGroup(ask *line.Ask) (*member, error) {
	config := newConfig(ask)
	config.Consumer.Return.Errors = true
	if ask.Is("isolation.level", "read_committed") {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	config.Consumer.Offsets.AutoCommit.Enable = ask.Is("enable.auto.commit", "true")
	if ask.Is("auto.offset.reset", "earliest") {
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
	}
	ask.Millis("session.timeout.ms", func(t time.Duration) { config.Consumer.Group.Session.Timeout = t })
	ask.Millis("heartbeat.interval.ms", func(t time.Duration) { config.Consumer.Group.Heartbeat.Interval = t })
	if name, given := ask.Settings["partition.assignment.strategy"]; given {
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[name]()}
	}
	config.Consumer.Group.InstanceId = ask.Settings["group.instance.id"]
	group, err := sarama.NewConsumerGroup(addresses(ask), ask.Settings["group.id"], config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	joined := &member{
		group, make(chan claimed), make(chan error, 1), make(chan sarama.ConsumerGroupSession, 1),
		line.NewAssignment(), cancel,
	}
	go joined.consume(ctx, ask.Topics)
	go func() {
		for err := range group.Errors() {
			joined.fail(err)
		}
	}()
	return joined, nil
}

func (m *member) consume(ctx context.Context, topics []string) {
	for ctx.Err() == nil { // every eager rebalance ends a Consume
		if err := m.group.Consume(ctx, topics, m); err != nil && ctx.Err() == nil {
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
			m.fail(err)
			time.Sleep(joinAgain)
		}
	}
}

// fail keeps the first error for whoever asks next.
func (m *member) fail(err error) {
	line.Log(err)
	select {
	case m.failed <- err:
	default:
	}
}

func (m *member) close() {
	m.leave()
	_ = m.group.Close()
}

func (d *driver) poll(ask *line.Ask) (any, error) {
	from := d.members.Get(ask.Member)
	if ask.Count == 0 { // it heartbeats and rebalances in the background
		from.owned.AwaitChange(ask.Timeout())
		return []line.Stored{}, nil
	}
	got, err := line.Gather(from.records, from.failed, ask.Count, ask.Timeout())
	if err != nil {
		return nil, err
	}
	found := []line.Stored{}
	for _, each := range got {
		each.session.MarkMessage(each.record, "")
		found = append(found, stored(each.record))
	}
	return found, nil
}

func (d *driver) commit(ask *line.Ask) (any, error) {
	from := d.members.Get(ask.Member)
	select {
	case session := <-from.session:
		from.session <- session
		session.Commit()
	default:
		return nil, sarama.ErrRebalanceInProgress
	}
	select { // what Commit met comes as an error of the group
	case err := <-from.failed:
		return nil, err
	case <-time.After(10 * time.Millisecond):
		return nil, nil
	}
}

func (d *driver) leave(ask *line.Ask) (any, error) {
	d.members.Take(ask.Member).close()
	return nil, nil
}
