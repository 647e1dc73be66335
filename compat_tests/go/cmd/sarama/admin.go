package main

import (
	"errors"
	"net"
	"strconv"

	"github.com/IBM/sarama"

	"lockstep/compat/line"
)

func (d *driver) admin(ask *line.Ask) (sarama.ClusterAdmin, error) {
	if made, found := d.admins[ask.Connection()]; found {
		return made, nil
	}
	made, err := sarama.NewClusterAdmin(addresses(ask), newConfig(ask))
	if err == nil {
		d.admins[ask.Connection()] = made
	}
	return made, err
}

func (d *driver) administration(answers line.Answers) {
	for name, act := range map[string]func(sarama.ClusterAdmin, *line.Ask) (any, error){
		"create_topic":   createTopic,
		"delete_topic":   func(a sarama.ClusterAdmin, ask *line.Ask) (any, error) { return nil, a.DeleteTopic(ask.Topic) },
		"topics":         topics,
		"describe_topic": describeTopic,
		"topic_config":   topicConfig,
		"set_config":     setConfig,
		"cluster":        cluster,
		"add_partitions": addPartitions,
		"delete_records": d.deleteRecords,
		"committed":      committed,
		"groups":         groups,
		"describe_group": describeGroup,
		"delete_group":   func(a sarama.ClusterAdmin, ask *line.Ask) (any, error) { return nil, a.DeleteConsumerGroup(ask.Group) },
		"set_offset":     setOffset,
		"delete_offset":  deleteOffset,
	} {
		answers[name] = func(ask *line.Ask) (any, error) {
			admin, err := d.admin(ask)
			if err != nil {
				return nil, err
			}
			return act(admin, ask)
		}
	}
}

// known is nil for the code that says there is no error.
func known(code sarama.KError) error {
	if code == sarama.ErrNoError {
		return nil
	}
	return code
}

func createTopic(admin sarama.ClusterAdmin, ask *line.Ask) (any, error) {
	wanted := sarama.TopicDetail{
		NumPartitions: ask.PartitionCount(), ReplicationFactor: ask.ReplicationFactor, ConfigEntries: ask.Configs,
	}
	return nil, admin.CreateTopic(ask.Topic, &wanted, false)
}

func topics(admin sarama.ClusterAdmin, _ *line.Ask) (any, error) {
	found, err := admin.ListTopics()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	return names, err
}

func describeTopic(admin sarama.ClusterAdmin, ask *line.Ask) (any, error) {
	found, err := admin.DescribeTopics([]string{ask.Topic})
	if err != nil {
		return nil, err
	}
	id := found[0].Uuid.String()
	return line.TopicInfo{Partitions: len(found[0].Partitions), TopicID: &id}, known(found[0].Err)
}

func topicConfig(admin sarama.ClusterAdmin, ask *line.Ask) (any, error) {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: ask.Topic})
	found := map[string]string{}
	for _, each := range entries {
		found[each.Name] = each.Value
	}
	return found, err
}

func setConfig(admin sarama.ClusterAdmin, ask *line.Ask) (any, error) {
	changes := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range ask.Configs {
		change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value}
		if value == nil {
			change.Operation = sarama.IncrementalAlterConfigsOperationDelete
		}
		changes[name] = change
	}
	return nil, admin.IncrementalAlterConfig(sarama.TopicResource, ask.Topic, changes, false)
}

func cluster(admin sarama.ClusterAdmin, _ *line.Ask) (any, error) {
	found, controller, err := admin.DescribeCluster()
	if err != nil {
		return nil, err
	}
	nodes := []line.Node{}
	for _, each := range found {
		host, port, err := net.SplitHostPort(each.Addr())
		if err != nil {
			return nil, err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, line.Node{ID: each.ID(), Host: host, Port: number})
	}
	return line.Cluster{ControllerID: controller, Brokers: nodes}, nil
}

func addPartitions(admin sarama.ClusterAdmin, ask *line.Ask) (any, error) {
	return nil, admin.CreatePartitions(ask.Topic, int32(ask.Total), nil, false)
}

func (d *driver) deleteRecords(admin sarama.ClusterAdmin, ask *line.Ask) (any, error) {
	if err := admin.DeleteRecords(ask.Topic, map[int32]int64{ask.Partition: ask.BeforeOffset}); err != nil {
		return nil, err
	}
	client, err := d.client(ask)
	if err != nil {
		return nil, err
	}
	return client.GetOffset(ask.Topic, ask.Partition, sarama.OffsetOldest) // its answer has no offset
}

func committed(admin sarama.ClusterAdmin, ask *line.Ask) (any, error) {
	answer, err := admin.ListConsumerGroupOffsets(ask.Group, map[string][]int32{ask.Topic: {ask.Partition}})
	if err != nil {
		return nil, err
	}
	found := answer.GetBlock(ask.Topic, ask.Partition)
	if found == nil || found.Err != sarama.ErrNoError || found.Offset < 0 {
		if found != nil {
			return nil, known(found.Err)
		}
		return nil, nil
	}
	return found.Offset, nil
}

func groups(admin sarama.ClusterAdmin, _ *line.Ask) (any, error) {
	found, err := admin.ListConsumerGroups()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	return names, err
}

func describeGroup(admin sarama.ClusterAdmin, ask *line.Ask) (any, error) {
	answer, err := admin.DescribeConsumerGroups([]string{ask.Group})
	if err != nil {
		return nil, err
	}
	found := answer[0]
	members := []line.GroupMember{}
	for _, each := range found.Members {
		described := line.GroupMember{MemberID: each.MemberId, ClientID: each.ClientId, Host: each.ClientHost}
		described.Assignment = []line.Owned{}
		assigned, err := each.GetMemberAssignment()
		if err != nil {
			return nil, err
		}
		if assigned != nil { // a member that was given nothing yet
			for topic, partitions := range assigned.Topics {
				for _, partition := range partitions {
					described.Assignment = append(described.Assignment, line.Owned{Topic: topic, Partition: partition})
				}
			}
		}
		members = append(members, described)
	}
	return line.Group{
		State: line.StateName(found.State), ProtocolType: found.ProtocolType, Protocol: found.Protocol, Members: members,
	}, known(found.Err)
}

func setOffset(admin sarama.ClusterAdmin, ask *line.Ask) (any, error) {
	wanted := map[string]map[int32]sarama.OffsetAndMetadata{
		ask.Topic: {ask.Partition: {Offset: ask.Offset, LeaderEpoch: -1}},
	}
	answer, err := admin.AlterConsumerGroupOffsets(ask.Group, wanted, nil)
	if err != nil {
		return nil, err
	}
	code, answered := answer.Errors[ask.Topic][ask.Partition]
	if !answered {
		return nil, errors.New("no answer for the partition")
	}
	return nil, known(code)
}

func deleteOffset(admin sarama.ClusterAdmin, ask *line.Ask) (any, error) {
	return nil, admin.DeleteConsumerGroupOffset(ask.Group, ask.Topic, ask.Partition)
}
