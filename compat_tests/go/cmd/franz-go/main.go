// franz-go under test: kgo for records and groups, kadm for administration.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/compat/line"
)

const (
	answerTime = 20 * time.Second
	tailWarmUp = 300 * time.Millisecond
)

var (
	codecs = map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	acks      = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	balancers = map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	timestampTypes = map[int8]string{0: "CreateTime", 1: "LogAppendTime"}
)

type driver struct {
	producers map[string]*kgo.Client
	tails     line.Numbered[*kgo.Client]
	members   line.Numbered[*member]
	open      line.Numbered[*transactional]
}

func main() {
	d := &driver{producers: map[string]*kgo.Client{}}
	answers := line.Answers{
		"version":         func(*line.Ask) (any, error) { return line.Version("github.com/twmb/franz-go") },
		"first_contact":   firstContact,
		"produce":         d.produce,
		"send_each":       sendEach,
		"read":            d.read,
		"tail_open":       d.tailOpen,
		"tail_next":       d.tailNext,
		"tail_close":      d.tailClose,
		"offsets":         offsets,
		"offset_for_time": offsetForTime,
		"join":            d.join,
		"poll":            d.poll,
		"assignment":      func(ask *line.Ask) (any, error) { return d.members.Get(ask.Member).owned.List(), nil },
		"commit":          d.commit,
		"leave":           d.leave,
	}
	d.transactions(answers)
	administration(answers)
	line.Serve(answers, codeOf, d.close)
}

func codeOf(err error) (int, bool) {
	var found *kerr.Error
	if errors.As(err, &found) {
		return int(found.Code), true
	}
	return 0, false
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), answerTime)
}

func (d *driver) close() {
	for _, each := range d.members.All() {
		each.client.Close()
	}
	for _, each := range d.open.All() {
		each.client.Close()
	}
	for _, each := range d.tails.All() {
		each.Close()
	}
	for _, each := range d.producers {
		each.Close()
	}
}

// -- produce ---------------------------------------------------------------------------------------------------------

func (d *driver) producer(ask *line.Ask) (*kgo.Client, error) {
	key := ask.SettingsKey()
	if made, found := d.producers[key]; found {
		return made, nil
	}
	made, err := newProducer(ask)
	if err == nil {
		d.producers[key] = made
	}
	return made, err
}

func newProducer(ask *line.Ask) (*kgo.Client, error) {
	options := append(connection(ask),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[ask.Settings["compression.type"]]),
		kgo.RequiredAcks(acks[ask.Settings["acks"]]),
		kgo.AllowAutoTopicCreation(), // off by default
	)
	if ask.Is("enable.idempotence", "false") {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	for _, name := range []string{"batch.size", "max.request.size"} {
		ask.Number(name, func(bytes int) { options = append(options, kgo.ProducerBatchMaxBytes(int32(bytes))) })
	}
	return kgo.NewClient(options...)
}

func (d *driver) produce(ask *line.Ask) (any, error) {
	producer, err := d.producer(ask)
	if err != nil {
		return nil, err
	}
	records := recordsOf(ask.Topic, ask.Messages)
	ctx, cancel := limited() // its own delivery timeout counts from the record's timestamp
	defer cancel()
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	if ask.Is("acks", "0") {
		return []int64{}, nil
	}
	return offsetsOf(records), nil
}

func sendEach(ask *line.Ask) (any, error) {
	producer, err := newProducer(ask)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	return ask.EachRound(func(messages []line.Message) []line.Sent {
		ctx, cancel := limited()
		defer cancel()
		records := recordsOf(ask.Topic, messages)
		became := map[*kgo.Record]error{}
		for _, each := range producer.ProduceSync(ctx, records...) { // in the order in which they were answered
			became[each.Record] = each.Err
		}
		told := []line.Sent{}
		for _, each := range records {
			told = append(told, line.Told(each.Offset, became[each], codeOf, nameOf))
		}
		return told
	}), nil
}

func nameOf(err error) string {
	var found *kerr.Error
	errors.As(err, &found)
	return found.Message
}

func recordsOf(topic string, messages []line.Message) (records []*kgo.Record) {
	for _, each := range messages {
		record := &kgo.Record{
			Topic: topic, Partition: each.Partition, Key: each.Key, Value: each.Value, Timestamp: each.Time(),
		}
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
		records = append(records, record)
	}
	return records
}

func offsetsOf(records []*kgo.Record) []int64 {
	offsets := []int64{}
	for _, each := range records {
		offsets = append(offsets, each.Offset)
	}
	return offsets
}

// -- consume ---------------------------------------------------------------------------------------------------------

func newConsumer(ask *line.Ask, partitions []int32, start kgo.Offset) (*kgo.Client, error) {
	assigned := map[int32]kgo.Offset{}
	for _, each := range partitions {
		assigned[each] = start
	}
	options := append(connection(ask),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{ask.Topic: assigned}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)
	ask.Number("max.partition.fetch.bytes", func(bytes int) {
		options = append(options, kgo.FetchMaxPartitionBytes(int32(bytes)))
	})
	if ask.Is("isolation.level", "read_committed") {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	ask.Millis("fetch.max.wait.ms", func(wait time.Duration) { options = append(options, kgo.FetchMaxWait(wait)) })
	return kgo.NewClient(options...)
}

// polled polls until count records came or the time is over.
func polled(client *kgo.Client, count int, wait time.Duration) ([]line.Stored, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	found := []line.Stored{}
	for len(found) < count && ctx.Err() == nil {
		fetches := client.PollRecords(ctx, count-len(found))
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				return nil, failed.Err
			}
		}
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, stored(record)) })
	}
	return found, nil
}

func stored(record *kgo.Record) line.Stored {
	headers := []line.Header{}
	for _, each := range record.Headers {
		headers = append(headers, line.Header{Key: each.Key, Value: each.Value})
	}
	found := line.Stored{
		Partition: record.Partition, Offset: record.Offset, Key: record.Key, Value: record.Value, Headers: headers,
		TimestampMs: record.Timestamp.UnixMilli(),
	}
	if name, told := timestampTypes[record.Attrs.TimestampType()]; told {
		found.TimestampType = &name
	}
	return found
}

func (d *driver) read(ask *line.Ask) (any, error) {
	var start kgo.Offset
	switch ask.Start {
	case "earliest":
		start = kgo.NewOffset().AtStart()
	case "latest":
		start = kgo.NewOffset().AtEnd()
	default:
		start = kgo.NewOffset().At(ask.StartOffset(0, 0))
	}
	consumer, err := newConsumer(ask, ask.Assigned(), start)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	return polled(consumer, ask.Count, ask.Timeout())
}

func (d *driver) tailOpen(ask *line.Ask) (any, error) {
	_, end, err := ends(ask)
	if err != nil {
		return nil, err
	}
	consumer, err := newConsumer(ask, []int32{ask.Partition}, kgo.NewOffset().At(end))
	if err != nil {
		return nil, err
	}
	if _, err := polled(consumer, 1, tailWarmUp); err != nil {
		return nil, err
	}
	return d.tails.Add(consumer), nil
}

func (d *driver) tailNext(ask *line.Ask) (any, error) {
	found, err := polled(d.tails.Get(ask.Tail), 1, ask.Timeout())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

func (d *driver) tailClose(ask *line.Ask) (any, error) {
	d.tails.Take(ask.Tail).Close()
	return nil, nil
}

func ends(ask *line.Ask) (begin, end int64, err error) {
	admin, err := newAdmin(ask)
	if err != nil {
		return 0, 0, err
	}
	defer admin.Close()
	ctx, cancel := limited()
	defer cancel()
	beginnings, err := admin.ListStartOffsets(ctx, ask.Topic)
	if err = errors.Join(err, beginnings.Error()); err != nil {
		return 0, 0, err
	}
	ends, err := admin.ListEndOffsets(ctx, ask.Topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return 0, 0, err
	}
	return beginnings[ask.Topic][ask.Partition].Offset, ends[ask.Topic][ask.Partition].Offset, nil
}

func offsets(ask *line.Ask) (any, error) {
	begin, end, err := ends(ask)
	return []int64{begin, end}, err
}

func offsetForTime(ask *line.Ask) (any, error) {
	admin, err := newAdmin(ask)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	ctx, cancel := limited()
	defer cancel()
	listed, err := admin.ListOffsetsAfterMilli(ctx, ask.TimestampMs, ask.Topic)
	if err = errors.Join(err, listed.Error()); err != nil {
		return nil, err
	}
	found := listed[ask.Topic][ask.Partition]
	if found.Timestamp < 0 { // kadm puts the end offset where the broker found none
		return nil, nil
	}
	return found.Offset, nil
}
