package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/compat/line"
)

// newAdmin is a client for one question: kadm answers from its client's cached metadata, and the cases look at once at
// what they changed.
func newAdmin(ask *line.Ask) (*kadm.Client, error) {
	client, err := kgo.NewClient(connection(ask)...)
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(client), nil
}

type request func(context.Context, *kadm.Client, *line.Ask) (any, error)

func administration(answers line.Answers) {
	for name, act := range map[string]request{
		"create_topic":   createTopic,
		"delete_topic":   deleteTopic,
		"topics":         topics,
		"describe_topic": describeTopic,
		"topic_config":   topicConfig,
		"set_config":     setConfig,
		"cluster":        cluster,
		"add_partitions": addPartitions,
		"delete_records": deleteRecords,
		"committed":      committed,
		"groups":         groups,
		"describe_group": describeGroup,
		"delete_group":   deleteGroup,
		"set_offset":     setOffset,
		"delete_offset":  deleteOffset,

		"transactions":         listTransactions,
		"describe_transaction": describeTransaction,
		"producers":            describeProducers,
	} {
		answers[name] = func(ask *line.Ask) (any, error) {
			admin, err := newAdmin(ask)
			if err != nil {
				return nil, err
			}
			defer admin.Close()
			ctx, cancel := limited()
			defer cancel()
			return act(ctx, admin, ask)
		}
	}
}

func createTopic(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	_, err := admin.CreateTopic(ctx, ask.PartitionCount(), ask.ReplicationFactor, ask.Configs, ask.Topic)
	return nil, err
}

func deleteTopic(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	_, err := admin.DeleteTopic(ctx, ask.Topic)
	return nil, err
}

func topics(ctx context.Context, admin *kadm.Client, _ *line.Ask) (any, error) {
	found, err := admin.ListTopics(ctx)
	return found.Names(), err
}

func describeTopic(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	metadata, err := admin.Metadata(ctx, ask.Topic)
	if err != nil {
		return nil, err
	}
	found := metadata.Topics[ask.Topic]
	id := found.ID.String()
	return line.TopicInfo{Partitions: len(found.Partitions), TopicID: &id}, found.Err
}

func topicConfig(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	described, err := admin.DescribeTopicConfigs(ctx, ask.Topic)
	if err != nil {
		return nil, err
	}
	found := map[string]*string{}
	_, err = described.On(ask.Topic, func(resource *kadm.ResourceConfig) error {
		for _, each := range resource.Configs {
			found[each.Key] = each.Value
		}
		return resource.Err
	})
	return found, err
}

func setConfig(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	var changes []kadm.AlterConfig
	for name, value := range ask.Configs {
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value}
		if value == nil {
			change.Op = kadm.DeleteConfig
		}
		changes = append(changes, change)
	}
	answer, err := admin.AlterTopicConfigs(ctx, changes, ask.Topic)
	if err == nil {
		_, err = answer.On(ask.Topic, func(each *kadm.AlterConfigsResponse) error { return each.Err })
	}
	return nil, err
}

func cluster(ctx context.Context, admin *kadm.Client, _ *line.Ask) (any, error) {
	found, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	nodes := []line.Node{}
	for _, each := range found.Brokers {
		nodes = append(nodes, line.Node{ID: each.NodeID, Host: each.Host, Port: int(each.Port)})
	}
	return line.Cluster{ClusterID: &found.Cluster, ControllerID: found.Controller, Brokers: nodes}, nil
}

func addPartitions(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	answer, err := admin.UpdatePartitions(ctx, ask.Total, ask.Topic)
	return nil, errors.Join(err, answer.Error())
}

func deleteRecords(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	var before kadm.Offsets
	before.AddOffset(ask.Topic, ask.Partition, ask.BeforeOffset, -1)
	answer, err := admin.DeleteRecords(ctx, before)
	if err = errors.Join(err, answer.Error()); err != nil {
		return nil, err
	}
	return answer[ask.Topic][ask.Partition].LowWatermark, nil
}

func committed(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	answer, err := admin.FetchOffsets(ctx, ask.Group)
	if err = errors.Join(err, answer.Error()); err != nil {
		return nil, err
	}
	found, is := answer.Lookup(ask.Topic, ask.Partition)
	if !is || found.At < 0 {
		return nil, nil
	}
	return found.At, nil
}

func groups(ctx context.Context, admin *kadm.Client, _ *line.Ask) (any, error) {
	found, err := admin.ListGroups(ctx)
	return slices.Concat([]string{}, found.Groups()), err
}

func describeGroup(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	answer, err := admin.DescribeGroups(ctx, ask.Group)
	if err != nil {
		return nil, err
	}
	found, is := answer[ask.Group]
	if !is {
		return nil, fmt.Errorf("no answer for %s", ask.Group)
	}
	members := []line.GroupMember{}
	for _, each := range found.Members {
		described := line.GroupMember{MemberID: each.MemberID, ClientID: each.ClientID, Host: each.ClientHost}
		described.Assignment = []line.Owned{}
		if assigned, is := each.Assigned.AsConsumer(); is {
			for _, topic := range assigned.Topics {
				for _, partition := range topic.Partitions {
					owned := line.Owned{Topic: topic.Topic, Partition: partition}
					described.Assignment = append(described.Assignment, owned)
				}
			}
		}
		members = append(members, described)
	}
	return line.Group{
		State: line.StateName(found.State), ProtocolType: found.ProtocolType, Protocol: found.Protocol, Members: members,
	}, found.Err
}

func deleteGroup(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	_, err := admin.DeleteGroup(ctx, ask.Group)
	return nil, err
}

func setOffset(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	var wanted kadm.Offsets
	wanted.AddOffset(ask.Topic, ask.Partition, ask.Offset, -1)
	return nil, admin.CommitAllOffsets(ctx, ask.Group, wanted)
}

func deleteOffset(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	var unwanted kadm.TopicsSet
	unwanted.Add(ask.Topic, ask.Partition)
	answer, err := admin.DeleteOffsets(ctx, ask.Group, unwanted)
	if err == nil {
		err = answer.Error()
	}
	return nil, err
}

// -- transactions ----------------------------------------------------------------------------------------------------

func listTransactions(ctx context.Context, admin *kadm.Client, _ *line.Ask) (any, error) {
	listed, err := admin.ListTransactions(ctx, nil, nil)
	found := map[string]string{}
	listed.Each(func(each kadm.ListedTransaction) { found[each.TxnID] = each.State })
	return found, err
}

func describeTransaction(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	described, err := admin.DescribeTransactions(ctx, ask.TransactionalID)
	found := described[ask.TransactionalID]
	if err = errors.Join(err, found.Err); err != nil {
		return nil, err
	}
	partitions := []line.Owned{}
	for _, each := range found.Topics.Sorted() {
		for _, number := range each.Partitions {
			partitions = append(partitions, line.Owned{Topic: each.Topic, Partition: number})
		}
	}
	return line.Transaction{
		State: found.State, ProducerID: found.ProducerID, TimeoutMs: found.TimeoutMillis, Partitions: partitions,
	}, nil
}

func describeProducers(ctx context.Context, admin *kadm.Client, ask *line.Ask) (any, error) {
	var asked kadm.TopicsSet
	asked.Add(ask.Topic, ask.Partition)
	described, err := admin.DescribeProducers(ctx, asked)
	if err != nil {
		return nil, err
	}
	found := [][]int64{}
	for _, each := range described.SortedProducers() {
		found = append(found, []int64{each.ProducerID, int64(each.ProducerEpoch), each.CurrentTxnStartOffset})
	}
	return found, nil
}
