package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/compat/line"
)

type member struct {
	client *kgo.Client
	owned  *line.Assignment
}

func (d *driver) join(ask *line.Ask) (any, error) {
	joined := &member{owned: line.NewAssignment()}
	autoCommit := ask.Is("enable.auto.commit", "true")
	lost := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { joined.owned.Remove(gone) }
	options := append(connection(ask),
		kgo.ConsumerGroup(ask.Settings["group.id"]),
		kgo.ConsumeTopics(ask.Topics...),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, fresh map[string][]int32) {
			joined.owned.Add(fresh)
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, gone map[string][]int32) {
			if autoCommit { // with a callback of our own, its default one that commits is gone
				if err := client.CommitUncommittedOffsets(ctx); err != nil {
					line.Log(err)
				}
			}
			joined.owned.Remove(gone)
		}),
		kgo.OnPartitionsLost(lost),
	)
	if !autoCommit {
		options = append(options, kgo.DisableAutoCommit())
	}
	switch ask.Settings["auto.offset.reset"] {
	case "earliest":
		options = append(options, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	case "latest":
		options = append(options, kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	}
	ask.Millis("session.timeout.ms", func(t time.Duration) { options = append(options, kgo.SessionTimeout(t)) })
	ask.Millis("heartbeat.interval.ms", func(t time.Duration) { options = append(options, kgo.HeartbeatInterval(t)) })
	if name, given := ask.Settings["partition.assignment.strategy"]; given {
		options = append(options, kgo.Balancers(balancers[name]))
	}
	if id, given := ask.Settings["group.instance.id"]; given {
		options = append(options, kgo.InstanceID(id))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	joined.client = client
	return d.members.Add(joined), nil
}

func (d *driver) poll(ask *line.Ask) (any, error) {
	from := d.members.Get(ask.Member)
	if ask.Count == 0 { // it heartbeats and rebalances in the background
		from.owned.AwaitChange(ask.Timeout())
		return []line.Stored{}, nil
	}
	return polled(from.client, ask.Count, ask.Timeout())
}

func (d *driver) commit(ask *line.Ask) (any, error) {
	ctx, cancel := limited()
	defer cancel()
	return nil, d.members.Get(ask.Member).client.CommitUncommittedOffsets(ctx)
}

func (d *driver) leave(ask *line.Ask) (any, error) {
	d.members.Take(ask.Member).client.Close()
	return nil, nil
}
