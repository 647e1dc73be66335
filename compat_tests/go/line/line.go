// Package line answers compat_tests in JSON lines: one question in, one answer out, in strict order.
//
// It owns the vocabulary's Go types and the loop. What each question means to a client is the driver's; the reference
// is java/Driver.java.
package line

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

const closingTime = 3 * time.Second

// Ask is one question; every `do` uses a few of the fields.
type Ask struct {
	Do                string             `json:"do"`
	Settings          map[string]string  `json:"settings"`
	Topic             string             `json:"topic"`
	Topics            []string           `json:"topics"`
	Group             string             `json:"group"`
	Messages          []Message          `json:"messages"`
	Rounds            [][]Message        `json:"rounds"`
	Partition         int32              `json:"partition"`
	Partitions        json.RawMessage    `json:"partitions"` // a list to read, a number to create
	ReplicationFactor int16              `json:"replication_factor"`
	Configs           map[string]*string `json:"configs"`
	Start             string             `json:"start"`
	Count             int                `json:"count"`
	TimeoutS          float64            `json:"timeout_s"`
	TimestampMs       int64              `json:"timestamp_ms"`
	Offset            int64              `json:"offset"`
	BeforeOffset      int64              `json:"before_offset"`
	Total             int                `json:"total"`
	Tail              int                `json:"tail"`
	Member            int                `json:"member"`
	Producer          int                `json:"producer"`
	TransactionalID   string             `json:"transactional_id"`
}

// Message is a record to be written. A nil TimestampMs lets the client stamp it.
type Message struct {
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []Header `json:"headers"`
	TimestampMs *int64   `json:"timestamp_ms"`
	Partition   int32    `json:"partition"`
}

// EachRound answers a question that has rounds of messages; send waits for those of one.
func (a *Ask) EachRound(send func([]Message) []Sent) [][]Sent {
	told := [][]Sent{}
	for _, messages := range a.Rounds {
		told = append(told, send(messages))
	}
	return told
}

// Time is the message's timestamp; the zero time when the client is to stamp it.
func (m Message) Time() time.Time {
	if m.TimestampMs == nil {
		return time.Time{}
	}
	return time.UnixMilli(*m.TimestampMs)
}

// Sent is what became of one record: its offset, or the error that its application saw (as failure).
type Sent struct {
	Offset int64  `json:"offset"`
	Code   int    `json:"code"`
	Name   string `json:"name"`
	Text   string `json:"text"`
}

// Told is a record's offset, or its error by the client's name.
func Told(offset int64, err error, codeOf func(error) (int, bool), name func(error) string) Sent {
	if err == nil {
		return Sent{Offset: offset}
	}
	code, isKafka := codeOf(err)
	if !isKafka {
		return Sent{-1, -1, fmt.Sprintf("%T", err), err.Error()}
	}
	return Sent{-1, code, name(err), err.Error()}
}

// Stored is a record read back. A nil TimestampType: the client does not tell.
type Stored struct {
	Partition     int32    `json:"partition"`
	Offset        int64    `json:"offset"`
	Key           []byte   `json:"key"`
	Value         []byte   `json:"value"`
	Headers       []Header `json:"headers"`
	TimestampMs   int64    `json:"timestamp_ms"`
	TimestampType *string  `json:"timestamp_type"`
}

// Header is [name, value] on the line.
type Header struct {
	Key   string
	Value []byte
}

func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Key, h.Value}) }

func (h *Header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.Key, &h.Value})
}

// Owned is a topic and a partition number of it: [topic, partition] on the line.
type Owned struct {
	Topic     string
	Partition int32
}

func (o Owned) MarshalJSON() ([]byte, error) { return json.Marshal([]any{o.Topic, o.Partition}) }

// Node is [id, host, port] on the line.
type Node struct {
	ID   int32
	Host string
	Port int
}

func (n Node) MarshalJSON() ([]byte, error) { return json.Marshal([]any{n.ID, n.Host, n.Port}) }

// Cluster is a cluster's description. A nil ClusterID: the client does not tell.
type Cluster struct {
	ClusterID    *string `json:"cluster_id"`
	ControllerID int32   `json:"controller_id"`
	Brokers      []Node  `json:"brokers"`
}

// TopicInfo is a topic's description. A nil TopicID: the client does not tell.
type TopicInfo struct {
	Partitions int     `json:"partitions"`
	TopicID    *string `json:"topic_id"`
}

// Group is a group's description; State goes through StateName.
type Group struct {
	State        string        `json:"state"`
	ProtocolType string        `json:"protocol_type"`
	Protocol     string        `json:"protocol"`
	Members      []GroupMember `json:"members"`
}

// GroupMember is one member of a described group.
type GroupMember struct {
	MemberID   string  `json:"member_id"`
	ClientID   string  `json:"client_id"`
	Host       string  `json:"host"`
	Assignment []Owned `json:"assignment"`
}

// Transaction is what is known of a transactional id.
type Transaction struct {
	State      string  `json:"state"`
	ProducerID int64   `json:"producer_id"`
	TimeoutMs  int32   `json:"timeout_ms"`
	Partitions []Owned `json:"partitions"`
}

// StateName is Kafka's state name without case: "preparingrebalance".
func StateName(state string) string { return strings.ToLower(state) }

// Bootstrap is the broker's address, host:port.
func (a *Ask) Bootstrap() string { return a.Settings["bootstrap.servers"] }

// Servers are the same, one by one.
func (a *Ask) Servers() []string { return strings.Split(a.Bootstrap(), ",") }

// SettingsKey names this set of settings: one producer serves every question that has the same.
func (a *Ask) SettingsKey() string {
	var pairs []string
	for name, value := range a.Settings {
		pairs = append(pairs, name+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// Number calls use with a setting's value if it was given.
func (a *Ask) Number(name string, use func(int)) {
	if text, given := a.Settings[name]; given {
		number, err := strconv.Atoi(text)
		if err != nil {
			panic(fmt.Sprintf("%s=%q is not a number", name, text))
		}
		use(number)
	}
}

// Millis calls use with a setting's value if it was given.
func (a *Ask) Millis(name string, use func(time.Duration)) {
	a.Number(name, func(ms int) { use(time.Duration(ms) * time.Millisecond) })
}

// Is says whether a setting was given with that value.
func (a *Ask) Is(name, value string) bool { return a.Settings[name] == value }

// Timeout is how long the question may take.
func (a *Ask) Timeout() time.Duration { return time.Duration(a.TimeoutS * float64(time.Second)) }

// Assigned are the partitions to read.
func (a *Ask) Assigned() []int32 {
	var numbers []int32
	if err := json.Unmarshal(a.Partitions, &numbers); err != nil {
		panic(err)
	}
	return numbers
}

// PartitionCount is how many partitions to create.
func (a *Ask) PartitionCount() int32 {
	var number int32
	if err := json.Unmarshal(a.Partitions, &number); err != nil {
		panic(err)
	}
	return number
}

// StartOffset is where to read from: a number, or what the client has for both ends.
func (a *Ask) StartOffset(earliest, latest int64) int64 {
	switch a.Start {
	case "earliest":
		return earliest
	case "latest":
		return latest
	}
	offset, err := strconv.ParseInt(a.Start, 10, 64)
	if err != nil {
		panic(err)
	}
	return offset
}

// Numbered holds what the other side refers to by number: tails, members.
type Numbered[T any] struct {
	items map[int]T
	last  int
}

// Add keeps an item; its number.
func (n *Numbered[T]) Add(item T) int {
	if n.items == nil {
		n.items = map[int]T{}
	}
	n.last++
	n.items[n.last] = item
	return n.last
}

// Get is the item of that number; an unknown number is the asking side's mistake.
func (n *Numbered[T]) Get(number int) T {
	item, found := n.items[number]
	if !found {
		panic(fmt.Sprintf("there is no %d", number))
	}
	return item
}

// Take is Get, and forgets it.
func (n *Numbered[T]) Take(number int) T {
	item := n.Get(number)
	delete(n.items, number)
	return item
}

// All are the items still held.
func (n *Numbered[T]) All() map[int]T { return n.items }

// Gather takes up to count records from a channel until the time is over or an error comes. What it does not take
// stays in the channel.
func Gather[T any](records <-chan T, failed <-chan error, count int, wait time.Duration) ([]T, error) {
	found := []T{}
	late := time.After(wait)
	for len(found) < count {
		select {
		case record := <-records:
			found = append(found, record)
		case err := <-failed:
			return nil, err
		case <-late:
			return found, nil
		}
	}
	return found, nil
}

// Answers is what a driver can do, by the question's `do`.
type Answers map[string]func(*Ask) (any, error)

type failure struct {
	Code  int    `json:"code"`
	Class string `json:"class"`
	Text  string `json:"text"`
}

// Serve answers every line of stdin and returns at its end. codeOf finds Kafka's number in a client's error; an error
// without one is no broker's.
func Serve(answers Answers, codeOf func(error) (int, bool), end func()) {
	questions := bufio.NewReaderSize(os.Stdin, 1<<20)
	lines := json.NewEncoder(os.Stdout)
	for {
		text, err := questions.ReadBytes('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, err)
			}
			break
		}
		if err := lines.Encode(answer(text, answers, codeOf)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	done := make(chan struct{})
	go func() { end(); close(done) }()
	select {
	case <-done:
	case <-time.After(closingTime): // a broker that is gone must not hold us
	}
}

func answer(text []byte, answers Answers, codeOf func(error) (int, bool)) (line map[string]any) {
	defer func() {
		if thrown := recover(); thrown != nil {
			line = map[string]any{"error": failure{-1, "panic", fmt.Sprint(thrown)}}
		}
	}()
	var ask Ask
	if err := json.Unmarshal(text, &ask); err != nil {
		return map[string]any{"error": failure{-1, "question", err.Error()}}
	}
	act, known := answers[ask.Do]
	if !known {
		return map[string]any{"error": failure{-1, "question", "unknown command " + ask.Do}}
	}
	value, err := act(&ask)
	if err != nil {
		code, isKafka := codeOf(err)
		if !isKafka {
			code = -1
		}
		return map[string]any{"error": failure{code, fmt.Sprintf("%T", err), err.Error()}}
	}
	return map[string]any{"ok": value}
}

// Version is the version of a module this driver was built with.
func Version(module string) (string, error) {
	built, _ := debug.ReadBuildInfo()
	for _, each := range built.Deps {
		if each.Path == module {
			return strings.TrimPrefix(each.Version, "v"), nil
		}
	}
	return "", fmt.Errorf("not built with %s", module)
}
