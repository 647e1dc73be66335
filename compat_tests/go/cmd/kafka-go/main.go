// segmentio/kafka-go under test: Writer, Reader, ConsumerGroup and Client, with their fixed, old API versions.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"lockstep/compat/line"
)

const (
	answerTime = 20 * time.Second
	tailWarmUp = 300 * time.Millisecond
)

var (
	codecs = map[string]kafka.Compression{
		"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
	acks = map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}
)

type driver struct {
	writers map[string]*writer
	tails   line.Numbered[*reading]
	members line.Numbered[member]
}

func main() {
	d := &driver{writers: map[string]*writer{}}
	answers := line.Answers{
		"version":         func(*line.Ask) (any, error) { return line.Version("github.com/segmentio/kafka-go") },
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
		"assignment":      d.assignment,
		"commit":          d.commit,
		"leave":           d.leave,
	}
	administration(answers)
	line.Serve(answers, codeOf, d.close)
}

func codeOf(err error) (int, bool) {
	var several kafka.WriteErrors
	if errors.As(err, &several) {
		err = errors.Join(several...)
	}
	var found kafka.Error
	if errors.As(err, &found) {
		return int(found), true
	}
	return 0, false
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), answerTime)
}

func (d *driver) close() {
	for _, each := range d.members.All() {
		each.close()
	}
	for _, each := range d.writers {
		_ = each.Close()
	}
}

// -- produce ---------------------------------------------------------------------------------------------------------

// writer is a Writer and what its last messages became; the index of each is its WriterData.
type writer struct {
	*kafka.Writer
	mutex   sync.Mutex
	offsets []int64
}

type position struct {
	index     int
	partition int
}

func (d *driver) writer(ask *line.Ask) *writer {
	key := ask.SettingsKey()
	if made, found := d.writers[key]; found {
		return made
	}
	made := newWriter(ask)
	d.writers[key] = made
	return made
}

func newWriter(ask *line.Ask) *writer {
	made := &writer{Writer: &kafka.Writer{
		Addr:                   kafka.TCP(ask.Servers()...),
		Transport:              newTransport(ask),
		Compression:            codecs[ask.Settings["compression.type"]],
		RequiredAcks:           acks[ask.Settings["acks"]],
		AllowAutoTopicCreation: true,                 // off by default; without it a new topic is unknown for six seconds
		BatchTimeout:           5 * time.Millisecond, // a second by default, which WriteMessages waits out
		Balancer: kafka.BalancerFunc(func(message kafka.Message, _ ...int) int {
			return message.WriterData.(position).partition
		}),
	}}
	for _, name := range []string{"batch.size", "max.request.size"} {
		ask.Number(name, func(bytes int) { made.BatchBytes = int64(bytes) })
	}
	made.Completion = func(messages []kafka.Message, err error) {
		made.mutex.Lock()
		defer made.mutex.Unlock()
		for _, each := range messages {
			if err == nil {
				made.offsets[each.WriterData.(position).index] = each.Offset
			}
		}
	}
	return made
}

func (d *driver) produce(ask *line.Ask) (any, error) {
	to := d.writer(ask)
	if err := to.write(ask.Topic, ask.Messages); err != nil {
		return nil, err
	}
	if ask.Is("acks", "0") {
		return []int64{}, nil
	}
	return to.offsets, nil
}

func sendEach(ask *line.Ask) (any, error) {
	to := newWriter(ask)
	to.BatchSize = 1
	defer func() { _ = to.Close() }()
	return ask.EachRound(func(messages []line.Message) []line.Sent {
		err := to.write(ask.Topic, messages)
		became := make(kafka.WriteErrors, len(messages))
		if !errors.As(err, &became) {
			for index := range became {
				became[index] = err
			}
		}
		told := []line.Sent{}
		for index := range messages {
			told = append(told, line.Told(to.offsets[index], became[index], codeOf, nameOf))
		}
		return told
	}), nil
}

func nameOf(err error) string {
	var found kafka.Error
	errors.As(err, &found)
	return found.Title()
}

// write writes all and waits for them; their offsets are in offsets then.
func (w *writer) write(topic string, from []line.Message) error {
	var messages []kafka.Message
	for index, each := range from {
		message := kafka.Message{
			Topic: topic, Key: each.Key, Value: each.Value, Time: each.Time(),
			WriterData: position{index, int(each.Partition)},
		}
		for _, header := range each.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Key, Value: header.Value})
		}
		messages = append(messages, message)
	}
	w.offsets = make([]int64, len(messages))
	ctx, cancel := limited()
	defer cancel()
	return w.WriteMessages(ctx, messages...)
}

// -- consume ---------------------------------------------------------------------------------------------------------

// reading is one Reader per partition, whose messages become one channel.
type reading struct {
	records chan line.Stored
	failed  chan error
	cancel  context.CancelFunc
}

func newReader(ask *line.Ask, topic string, partition int, offset int64) (*kafka.Reader, error) {
	config := kafka.ReaderConfig{
		Brokers: ask.Servers(), Dialer: newDialer(ask), Topic: topic, Partition: partition, OffsetOutOfRangeError: true,
	}
	ask.Number("max.partition.fetch.bytes", func(bytes int) { config.MaxBytes = bytes })
	ask.Millis("fetch.max.wait.ms", func(wait time.Duration) { config.MaxWait = wait })
	reader := kafka.NewReader(config)
	return reader, reader.SetOffset(offset)
}

func open(ask *line.Ask, partitions []int32, offset int64) (*reading, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reading{make(chan line.Stored), make(chan error), cancel}
	for _, number := range partitions {
		reader, err := newReader(ask, ask.Topic, int(number), offset)
		if err != nil {
			cancel()
			return nil, err
		}
		go func() {
			forward(ctx, reader, r.failed, func(message kafka.Message) {
				select {
				case r.records <- stored(message):
				case <-ctx.Done():
				}
			})
		}()
	}
	return r, nil
}

// forward hands every message over until the context ends, then lets the reader go: its Close waits for the fetch in
// flight, up to ten seconds by default.
func forward(ctx context.Context, reader *kafka.Reader, failed chan<- error, hand func(kafka.Message)) {
	defer func() { go func() { _ = reader.Close() }() }()
	for {
		message, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			select {
			case failed <- err:
			case <-ctx.Done():
				return
			}
			continue
		}
		hand(message)
	}
}

func stored(message kafka.Message) line.Stored {
	headers := []line.Header{}
	for _, each := range message.Headers {
		headers = append(headers, line.Header{Key: each.Key, Value: each.Value})
	}
	return line.Stored{
		Partition: int32(message.Partition), Offset: message.Offset, Key: message.Key, Value: message.Value,
		Headers: headers, TimestampMs: message.Time.UnixMilli(),
	}
}

func (d *driver) read(ask *line.Ask) (any, error) {
	from, err := open(ask, ask.Assigned(), ask.StartOffset(kafka.FirstOffset, kafka.LastOffset))
	if err != nil {
		return nil, err
	}
	defer from.cancel()
	return line.Gather(from.records, from.failed, ask.Count, ask.Timeout())
}

func (d *driver) tailOpen(ask *line.Ask) (any, error) {
	_, end, err := ends(ask)
	if err != nil {
		return nil, err
	}
	tail, err := open(ask, []int32{ask.Partition}, end)
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
	d.tails.Take(ask.Tail).cancel()
	return nil, nil
}

func listed(ask *line.Ask, wanted kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	client, end := newClient(ask)
	defer end()
	ctx, cancel := limited()
	defer cancel()
	answer, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{ask.Topic: {wanted}},
	})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	found := answer.Topics[ask.Topic][0]
	return found, found.Error
}

func ends(ask *line.Ask) (begin, end int64, err error) {
	first, err := listed(ask, kafka.FirstOffsetOf(int(ask.Partition)))
	if err != nil {
		return 0, 0, err
	}
	last, err := listed(ask, kafka.LastOffsetOf(int(ask.Partition)))
	return first.FirstOffset, last.LastOffset, err
}

func offsets(ask *line.Ask) (any, error) {
	begin, end, err := ends(ask)
	return []int64{begin, end}, err
}

func offsetForTime(ask *line.Ask) (any, error) {
	found, err := listed(ask, kafka.TimeOffsetOf(int(ask.Partition), time.UnixMilli(ask.TimestampMs)))
	if err != nil {
		return nil, err
	}
	for offset := range found.Offsets {
		if offset >= 0 {
			return offset, nil
		}
	}
	return nil, nil
}
