// sarama under test, with the protocol version it chooses by default.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"

	"lockstep/compat/line"
)

const tailWarmUp = 300 * time.Millisecond

var (
	codecs = map[string]sarama.CompressionCodec{
		"none":   sarama.CompressionNone,
		"gzip":   sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy,
		"lz4":    sarama.CompressionLZ4,
		"zstd":   sarama.CompressionZSTD,
	}
	acks = map[string]sarama.RequiredAcks{
		"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
	}
)

type driver struct {
	producers map[string]sarama.SyncProducer
	clients   map[string]sarama.Client
	admins    map[string]sarama.ClusterAdmin
	tails     line.Numbered[*reading]
	members   line.Numbered[*member]
	open      line.Numbered[*transactional]
}

func main() {
	sarama.Logger = log.New(os.Stderr, "sarama ", log.Ltime)
	d := &driver{map[string]sarama.SyncProducer{}, map[string]sarama.Client{}, map[string]sarama.ClusterAdmin{},
		line.Numbered[*reading]{}, line.Numbered[*member]{}, line.Numbered[*transactional]{}}
	answers := line.Answers{
		"version":         func(*line.Ask) (any, error) { return line.Version("github.com/IBM/sarama") },
		"first_contact":   firstContact,
		"produce":         d.produce,
		"send_each":       sendEach,
		"read":            d.read,
		"tail_open":       d.tailOpen,
		"tail_next":       d.tailNext,
		"tail_close":      d.tailClose,
		"offsets":         d.offsets,
		"offset_for_time": d.offsetForTime,
		"join":            d.join,
		"poll":            d.poll,
		"assignment":      func(ask *line.Ask) (any, error) { return d.members.Get(ask.Member).owned.List(), nil },
		"commit":          d.commit,
		"leave":           d.leave,
	}
	d.transactions(answers)
	d.administration(answers)
	line.Serve(answers, codeOf, d.close)
}

func codeOf(err error) (int, bool) {
	var several sarama.ProducerErrors
	if errors.As(err, &several) && len(several) > 0 {
		err = several[0]
	}
	var found sarama.KError
	if errors.As(err, &found) {
		return int(found), true
	}
	return 0, false
}

func (d *driver) close() {
	for _, each := range d.members.All() {
		each.close()
	}
	for _, each := range d.open.All() {
		each.close()
	}
	for _, each := range d.producers {
		_ = each.Close()
	}
}

func addresses(ask *line.Ask) []string { return ask.Servers() }

func (d *driver) client(ask *line.Ask) (sarama.Client, error) {
	if made, found := d.clients[ask.Connection()]; found {
		return made, nil
	}
	made, err := sarama.NewClient(addresses(ask), newConfig(ask))
	if err == nil {
		d.clients[ask.Connection()] = made
	}
	return made, err
}

// -- produce ---------------------------------------------------------------------------------------------------------

func (d *driver) producer(ask *line.Ask) (sarama.SyncProducer, error) {
	key := ask.SettingsKey()
	if made, found := d.producers[key]; found {
		return made, nil
	}
	made, err := sarama.NewSyncProducer(addresses(ask), producing(ask))
	if err == nil {
		d.producers[key] = made
	}
	return made, err
}

func producing(ask *line.Ask) *sarama.Config {
	config := newConfig(ask)
	config.Producer.Return.Successes = true // a SyncProducer's condition
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = codecs[ask.Settings["compression.type"]]
	config.Producer.RequiredAcks = acks[ask.Settings["acks"]]
	if ask.Is("enable.idempotence", "true") {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1 // its condition
	}
	ask.Number("batch.size", func(bytes int) {
		config.Producer.Flush.Bytes = bytes
		config.Producer.Flush.Frequency = 5 * time.Millisecond // else the last batch would wait for ever
	})
	ask.Number("max.request.size", func(bytes int) { config.Producer.MaxMessageBytes = bytes })
	return config
}

func (d *driver) produce(ask *line.Ask) (any, error) {
	producer, err := d.producer(ask)
	if err != nil {
		return nil, err
	}
	messages := messagesOf(ask.Topic, ask.Messages)
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	if ask.Is("acks", "0") {
		return []int64{}, nil
	}
	return offsetsOf(messages), nil
}

func sendEach(ask *line.Ask) (any, error) {
	config := producing(ask)
	config.Producer.Flush.MaxMessages = 1 // it has no limit in bytes
	producer, err := sarama.NewSyncProducer(addresses(ask), config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = producer.Close() }()
	return ask.EachRound(func(messages []line.Message) []line.Sent {
		sent := messagesOf(ask.Topic, messages)
		became := map[*sarama.ProducerMessage]error{}
		var failed sarama.ProducerErrors
		if errors.As(producer.SendMessages(sent), &failed) {
			for _, each := range failed {
				became[each.Msg] = each.Err
			}
		}
		told := []line.Sent{}
		for _, each := range sent {
			told = append(told, line.Told(each.Offset, became[each], codeOf, nameOf))
		}
		return told
	}), nil
}

func nameOf(err error) string { return fmt.Sprintf("%T", err) }

func messagesOf(topic string, from []line.Message) (messages []*sarama.ProducerMessage) {
	for _, each := range from {
		message := &sarama.ProducerMessage{Topic: topic, Partition: each.Partition, Timestamp: each.Time()}
		if each.Key != nil {
			message.Key = sarama.ByteEncoder(each.Key)
		}
		if each.Value != nil {
			message.Value = sarama.ByteEncoder(each.Value)
		}
		for _, header := range each.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Key), Value: header.Value})
		}
		messages = append(messages, message)
	}
	return messages
}

func offsetsOf(messages []*sarama.ProducerMessage) []int64 {
	offsets := []int64{}
	for _, each := range messages {
		offsets = append(offsets, each.Offset)
	}
	return offsets
}

// -- consume ---------------------------------------------------------------------------------------------------------

// reading is a consumer of some partitions, whose channels are made one.
type reading struct {
	consumer sarama.Consumer
	records  chan line.Stored
	failed   chan error
	done     chan struct{}
}

func open(ask *line.Ask, partitions []int32, offset int64) (*reading, error) {
	config := newConfig(ask)
	config.Consumer.Return.Errors = true
	ask.Number("max.partition.fetch.bytes", func(bytes int) { config.Consumer.Fetch.Default = int32(bytes) })
	if ask.Is("isolation.level", "read_committed") {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	ask.Millis("fetch.max.wait.ms", func(wait time.Duration) { config.Consumer.MaxWaitTime = wait })
	consumer, err := sarama.NewConsumer(addresses(ask), config)
	if err != nil {
		return nil, err
	}
	r := &reading{consumer, make(chan line.Stored), make(chan error), make(chan struct{})}
	for _, number := range partitions {
		partition, err := consumer.ConsumePartition(ask.Topic, number, offset)
		if err != nil {
			r.close()
			return nil, err
		}
		go r.forward(partition)
	}
	return r, nil
}

func (r *reading) forward(partition sarama.PartitionConsumer) {
	defer partition.AsyncClose()
	for {
		select {
		case <-r.done:
			return
		case record := <-partition.Messages():
			select {
			case r.records <- stored(record):
			case <-r.done:
				return
			}
		case err := <-partition.Errors():
			select {
			case r.failed <- err:
			case <-r.done:
				return
			}
		}
	}
}

// close does not wait: the fetch in flight may take its whole wait.
func (r *reading) close() {
	close(r.done)
	go func() { _ = r.consumer.Close() }()
}

func stored(record *sarama.ConsumerMessage) line.Stored {
	headers := []line.Header{}
	for _, each := range record.Headers {
		headers = append(headers, line.Header{Key: string(each.Key), Value: each.Value})
	}
	return line.Stored{
		Partition: record.Partition, Offset: record.Offset, Key: record.Key, Value: record.Value, Headers: headers,
		TimestampMs: record.Timestamp.UnixMilli(),
	}
}

func (d *driver) read(ask *line.Ask) (any, error) {
	from, err := open(ask, ask.Assigned(), ask.StartOffset(sarama.OffsetOldest, sarama.OffsetNewest))
	if err != nil {
		return nil, err
	}
	defer from.close()
	return line.Gather(from.records, from.failed, ask.Count, ask.Timeout())
}

func (d *driver) tailOpen(ask *line.Ask) (any, error) {
	tail, err := open(ask, []int32{ask.Partition}, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	time.Sleep(tailWarmUp)
	return d.tails.Add(tail), nil
}

func (d *driver) tailNext(ask *line.Ask) (any, error) {
	tail := d.tails.Get(ask.Tail)
	found, err := line.Gather(tail.records, tail.failed, 1, ask.Timeout())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

func (d *driver) tailClose(ask *line.Ask) (any, error) {
	d.tails.Take(ask.Tail).close()
	return nil, nil
}

func (d *driver) offsets(ask *line.Ask) (any, error) {
	client, err := d.client(ask)
	if err != nil {
		return nil, err
	}
	begin, err := client.GetOffset(ask.Topic, ask.Partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	end, err := client.GetOffset(ask.Topic, ask.Partition, sarama.OffsetNewest)
	return []int64{begin, end}, err
}

func (d *driver) offsetForTime(ask *line.Ask) (any, error) {
	client, err := d.client(ask)
	if err != nil {
		return nil, err
	}
	offset, err := client.GetOffset(ask.Topic, ask.Partition, ask.TimestampMs)
	if err != nil || offset < 0 {
		return nil, err
	}
	return offset, nil
}
