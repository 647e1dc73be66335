package main

import (
	"context"

	"github.com/segmentio/kafka-go"

	"lockstep/compat/line"
)

// newClient is a client for one question, and how to end it: a Transport answers metadata from a cache that is up to
// six seconds old, and the cases look at once at what they changed.
func newClient(ask *line.Ask) (*kafka.Client, func()) {
	transport := newTransport(ask)
	return &kafka.Client{Addr: kafka.TCP(ask.Servers()...), Transport: transport}, transport.CloseIdleConnections
}

func administration(answers line.Answers) {
	for name, act := range map[string]func(context.Context, *kafka.Client, *line.Ask) (any, error){
		"create_topic":   createTopic,
		"delete_topic":   deleteTopic,
		"topics":         topics,
		"describe_topic": describeTopic,
		"topic_config":   topicConfig,
		"set_config":     setConfig,
		"cluster":        cluster,
		"add_partitions": addPartitions,
		"committed":      committed,
		"groups":         groups,
		"describe_group": describeGroup,
		"delete_group":   deleteGroup,
		"set_offset":     setOffset,
		"delete_offset":  deleteOffset,
	} {
		answers[name] = func(ask *line.Ask) (any, error) {
			client, end := newClient(ask)
			defer end()
			ctx, cancel := limited()
			defer cancel()
			return act(ctx, client, ask)
		}
	}
}

func createTopic(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	wanted := kafka.TopicConfig{
		Topic: ask.Topic, NumPartitions: int(ask.PartitionCount()), ReplicationFactor: int(ask.ReplicationFactor),
	}
	for name, value := range ask.Configs {
		wanted.ConfigEntries = append(wanted.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: *value})
	}
	answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[ask.Topic]
}

func deleteTopic(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	answer, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{ask.Topic}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[ask.Topic]
}

func topics(ctx context.Context, client *kafka.Client, _ *line.Ask) (any, error) {
	found, err := client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, each := range found.Topics {
		names = append(names, each.Name)
	}
	return names, nil
}

func describeTopic(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	found, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{ask.Topic}})
	if err != nil {
		return nil, err
	}
	return line.TopicInfo{Partitions: len(found.Topics[0].Partitions)}, found.Topics[0].Error
}

func topicConfig(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	answer, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: ask.Topic},
		},
	})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, each := range answer.Resources[0].ConfigEntries {
		found[each.ConfigName] = each.ConfigValue
	}
	return found, answer.Resources[0].Error
}

func setConfig(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	var changes []kafka.IncrementalAlterConfigsRequestConfig
	for name, value := range ask.Configs {
		change := kafka.IncrementalAlterConfigsRequestConfig{Name: name, ConfigOperation: kafka.ConfigOperationDelete}
		if value != nil {
			change.Value, change.ConfigOperation = *value, kafka.ConfigOperationSet
		}
		changes = append(changes, change)
	}
	answer, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: ask.Topic, Configs: changes},
		},
	})
	if err != nil {
		return nil, err
	}
	return nil, answer.Resources[0].Error
}

func cluster(ctx context.Context, client *kafka.Client, _ *line.Ask) (any, error) {
	found, err := client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	nodes := []line.Node{}
	for _, each := range found.Brokers {
		nodes = append(nodes, line.Node{ID: int32(each.ID), Host: each.Host, Port: each.Port})
	}
	return line.Cluster{ClusterID: &found.ClusterID, ControllerID: int32(found.Controller.ID), Brokers: nodes}, nil
}

func addPartitions(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	answer, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: ask.Topic, Count: int32(ask.Total)}},
	})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[ask.Topic]
}

// -- groups ----------------------------------------------------------------------------------------------------------

func committed(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	answer, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: ask.Group, Topics: map[string][]int{ask.Topic: {int(ask.Partition)}},
	})
	if err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return nil, answer.Error
	}
	found := answer.Topics[ask.Topic][0]
	if found.Error != nil || found.CommittedOffset < 0 {
		return nil, found.Error
	}
	return found.CommittedOffset, nil
}

func groups(ctx context.Context, client *kafka.Client, _ *line.Ask) (any, error) {
	answer, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, each := range answer.Groups {
		names = append(names, each.GroupID)
	}
	return names, answer.Error
}

func describeGroup(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	answer, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{ask.Group}})
	if err != nil {
		return nil, err
	}
	found := answer.Groups[0]
	members := []line.GroupMember{}
	for _, each := range found.Members {
		described := line.GroupMember{MemberID: each.MemberID, ClientID: each.ClientID, Host: each.ClientHost}
		described.Assignment = []line.Owned{}
		for _, topic := range each.MemberAssignments.Topics {
			for _, partition := range topic.Partitions {
				owned := line.Owned{Topic: topic.Topic, Partition: int32(partition)}
				described.Assignment = append(described.Assignment, owned)
			}
		}
		members = append(members, described)
	}
	return line.Group{State: line.StateName(found.GroupState), Members: members}, found.Error
}

func deleteGroup(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	answer, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{ask.Group}})
	if err != nil {
		return nil, err
	}
	return nil, answer.Errors[ask.Group]
}

func setOffset(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	answer, err := client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: ask.Group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{ask.Topic: {{Partition: int(ask.Partition), Offset: ask.Offset}}},
	})
	if err != nil {
		return nil, err
	}
	return nil, answer.Topics[ask.Topic][0].Error
}

func deleteOffset(ctx context.Context, client *kafka.Client, ask *line.Ask) (any, error) {
	answer, err := client.OffsetDelete(ctx, &kafka.OffsetDeleteRequest{
		GroupID: ask.Group, Topics: map[string][]int{ask.Topic: {int(ask.Partition)}},
	})
	if err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return nil, answer.Error
	}
	return nil, answer.Topics[ask.Topic][0].Error
}
