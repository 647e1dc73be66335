package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"lockstep/compat/line"
)

var balancers = map[string]kafka.GroupBalancer{
	"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
}

// member is either of kafka-go's two consumers in a group.
type member interface {
	poll(ask *line.Ask) ([]line.Stored, error)
	assignment() (any, error)
	commit() error
	close()
}

func (d *driver) join(ask *line.Ask) (any, error) {
	var balance []kafka.GroupBalancer
	if name, given := ask.Settings["partition.assignment.strategy"]; given {
		balance = append(balance, balancers[name])
	}
	start := kafka.LastOffset
	if ask.Is("auto.offset.reset", "earliest") {
		start = kafka.FirstOffset
	}
	var session, heartbeat time.Duration
	ask.Millis("session.timeout.ms", func(t time.Duration) { session = t })
	ask.Millis("heartbeat.interval.ms", func(t time.Duration) { heartbeat = t })
	brokers, dialer := ask.Servers(), newDialer(ask)
	if ask.Is("enable.auto.commit", "true") { // only its Reader commits by itself
		return d.members.Add(&committing{kafka.NewReader(kafka.ReaderConfig{
			Brokers: brokers, Dialer: dialer, GroupID: ask.Settings["group.id"], GroupTopics: ask.Topics, GroupBalancers: balance,
			StartOffset: start, SessionTimeout: session, HeartbeatInterval: heartbeat,
			MaxWait: 500 * time.Millisecond, // ten seconds by default, which its Close waits out
		})}), nil
	}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		Brokers: brokers, Dialer: dialer, ID: ask.Settings["group.id"], Topics: ask.Topics, GroupBalancers: balance,
		StartOffset: start, SessionTimeout: session, HeartbeatInterval: heartbeat,
	})
	if err != nil {
		return nil, err
	}
	joined := &generations{
		group: group, records: make(chan kafka.Message), failed: make(chan error), owned: line.NewAssignment(),
	}
	go joined.run(ask)
	return d.members.Add(joined), nil
}

func (d *driver) poll(ask *line.Ask) (any, error) { return d.members.Get(ask.Member).poll(ask) }

func (d *driver) assignment(ask *line.Ask) (any, error) {
	return d.members.Get(ask.Member).assignment()
}

func (d *driver) commit(ask *line.Ask) (any, error) { return nil, d.members.Get(ask.Member).commit() }

func (d *driver) leave(ask *line.Ask) (any, error) {
	d.members.Take(ask.Member).close()
	return nil, nil
}

// -- ConsumerGroup, with a Reader per partition of a generation as in kafka-go's example -----------------------------

type generations struct {
	group   *kafka.ConsumerGroup
	records chan kafka.Message
	failed  chan error
	owned   *line.Assignment

	mutex    sync.Mutex
	live     *kafka.Generation
	position map[string]map[int]int64 // behind what poll returned in this generation
}

func (m *generations) run(ask *line.Ask) {
	for {
		generation, err := m.group.Next(context.Background())
		if errors.Is(err, kafka.ErrGroupClosed) {
			return
		}
		if err != nil { // its Reader logs these too; the group tries again
			line.Log(err)
			continue
		}
		m.begin(generation, ask)
	}
}

func (m *generations) begin(generation *kafka.Generation, ask *line.Ask) {
	owned := map[string][]int32{}
	position := map[string]map[int]int64{}
	for topic, partitions := range generation.Assignments {
		position[topic] = map[int]int64{}
		for _, each := range partitions {
			owned[topic] = append(owned[topic], int32(each.ID))
			reader, err := newReader(ask, topic, each.ID, each.Offset)
			if err != nil {
				line.Log(err)
				continue
			}
			generation.Start(func(ctx context.Context) {
				forward(ctx, reader, m.failed, func(message kafka.Message) {
					select {
					case m.records <- message:
					case <-ctx.Done():
					}
				})
			})
		}
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.live, m.position = generation, position
	m.owned.Add(owned)
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		m.mutex.Lock()
		defer m.mutex.Unlock()
		m.live, m.position = nil, nil
		m.owned.Remove(owned)
	})
}

func (m *generations) poll(ask *line.Ask) ([]line.Stored, error) {
	if ask.Count == 0 { // it heartbeats and rebalances in the background
		m.owned.AwaitChange(ask.Timeout())
		return []line.Stored{}, nil
	}
	got, err := line.Gather(m.records, m.failed, ask.Count, ask.Timeout())
	if err != nil {
		return nil, err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	found := []line.Stored{}
	for _, each := range got {
		found = append(found, stored(each))
		if partitions, still := m.position[each.Topic]; still {
			partitions[each.Partition] = each.Offset + 1
		}
	}
	return found, nil
}

func (m *generations) assignment() (any, error) { return m.owned.List(), nil }

func (m *generations) commit() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.live == nil {
		return kafka.RebalanceInProgress
	}
	return m.live.CommitOffsets(m.position)
}

func (m *generations) close() { _ = m.group.Close() }

// -- Reader with a GroupID, whose ReadMessage commits ----------------------------------------------------------------

type committing struct{ reader *kafka.Reader }

func (m *committing) poll(ask *line.Ask) ([]line.Stored, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ask.Timeout())
	defer cancel()
	found := []line.Stored{}
	for len(found) < ask.Count {
		message, err := m.reader.ReadMessage(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		found = append(found, stored(message))
	}
	return found, nil
}

func (m *committing) assignment() (any, error) {
	return nil, errors.New("a Reader with a GroupID does not tell its assignment")
}

func (m *committing) commit() error { return nil } // ReadMessage has done it

func (m *committing) close() { _ = m.reader.Close() }
