package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"

	"github.com/anishathalye/porcupine"
)

// history is what `tests/campaigns/conditional_history.py` writes: operations on the partitions of one topic.
type history struct {
	Operations []*operation `json:"operations"`
}

// operation is an append (Records) or a read (Seen). Times are nanoseconds of one clock; without a Return
// nobody heard the answer, and what is said of the outcome was found in the log afterwards.
type operation struct {
	Client    int       `json:"client"`
	Call      int64     `json:"call"`
	Return    *int64    `json:"return,omitempty"`
	Partition int       `json:"partition"`
	Records   []*record `json:"records,omitempty"`
	Stored    *int64    `json:"stored,omitempty"`
	Refused   *refusal  `json:"refused,omitempty"`
	Seen      *int64    `json:"seen,omitempty"`
}

// record is one record's conditions, and what it raises.
type record struct {
	Hwm       int64      `json:"hwm"`
	Writes    []string   `json:"write,omitempty"`
	Reads     []string   `json:"read,omitempty"`
	Appends   []string   `json:"append,omitempty"`
	Expected  *int64     `json:"expected,omitempty"`
	Elsewhere *elsewhere `json:"elsewhere,omitempty"`
	Request   string     `json:"request,omitempty"`

	checks []check
	raises uint64
}

type elsewhere struct {
	Partition int    `json:"partition"`
	Hwm       int64  `json:"hwm"`
	Read      string `json:"read"`
}

// refusal is the broker's line, word by word.
type refusal struct {
	Error            int    `json:"error"`
	Reason           string `json:"reason"`
	Record           int    `json:"record"`
	Partition        int    `json:"partition"`
	Lock             string `json:"lock,omitempty"`
	Mode             string `json:"mode,omitempty"`
	Hwm              int64  `json:"hwm"`
	Expected         int64  `json:"expected,omitempty"`
	ConflictOffset   int64  `json:"conflict_offset"`
	LastStableOffset int64  `json:"last_stable_offset"`
	Exact            bool   `json:"exact"`

	lock int
}

// check is one lock that must not have been raised above hwm.
type check struct {
	partition int
	lock      int
	mode      string
	hwm       int64
}

// load reads a history and numbers its locks.
func load(path string) (*history, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := &history{}
	if err := json.Unmarshal(text, found); err != nil {
		return nil, err
	}
	numbers := map[string]int{}
	for place, op := range found.Operations {
		if err := op.prepare(numbers); err != nil {
			return nil, fmt.Errorf("operation %d: %w", place, err)
		}
	}
	if len(numbers) > mostLocks {
		return nil, fmt.Errorf("%d locks, at most %d", len(numbers), mostLocks)
	}
	return found, nil
}

func (op *operation) prepare(numbers map[string]int) error {
	number := func(name string) int {
		if _, known := numbers[name]; !known {
			numbers[name] = len(numbers)
		}
		return numbers[name]
	}
	outcomes := 0
	for _, is := range []bool{op.Stored != nil, op.Refused != nil, op.Seen != nil} {
		if is {
			outcomes++
		}
	}
	if outcomes != 1 || (op.Seen == nil) != (len(op.Records) > 0) {
		return fmt.Errorf("neither an append with its outcome nor a read")
	}
	partitions := []int{op.Partition}
	for _, each := range op.Records {
		for mode, names := range map[string][]string{"W": each.Writes, "R": each.Reads} {
			for _, name := range names {
				each.checks = append(each.checks, check{op.Partition, number(name), mode, each.Hwm})
			}
		}
		for _, names := range [][]string{each.Writes, each.Appends} {
			for _, name := range names {
				each.raises |= 1 << number(name)
			}
		}
		if there := each.Elsewhere; there != nil {
			each.checks = append(each.checks, check{there.Partition, number(there.Read), "R", there.Hwm})
			partitions = append(partitions, there.Partition)
		}
	}
	if refused := op.Refused; refused != nil {
		if refused.Record < 0 || refused.Record >= len(op.Records) {
			return fmt.Errorf("refused for record %d of %d", refused.Record, len(op.Records))
		}
		refused.lock = number(refused.Lock)
		partitions = append(partitions, refused.Partition)
	}
	for _, each := range partitions {
		if each < 0 || each >= mostPartitions {
			return fmt.Errorf("partition %d, there are %d at most", each, mostPartitions)
		}
	}
	return nil
}

// operations are porcupine's. Whoever was told that a batch is stored knows at that moment that it is
// committed, which is a read of its own: batches are appended some time before.
func (h *history) operations() []porcupine.Operation {
	found := make([]porcupine.Operation, 0, 2*len(h.Operations))
	for _, op := range h.Operations {
		end := int64(math.MaxInt64)
		if op.Return != nil {
			end = *op.Return
		}
		found = append(found, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Return: end})
		if op.Stored != nil && op.Return != nil {
			seen := *op.Stored + int64(len(op.Records))
			told := &operation{Client: op.Client, Partition: op.Partition, Seen: &seen}
			found = append(found, porcupine.Operation{ClientId: op.Client, Input: told, Call: end, Return: end})
		}
	}
	return found
}

// coupled splits operations by partitions that no read lock of another partition connects: each part may be
// judged alone.
func coupled(all []porcupine.Operation) [][]porcupine.Operation {
	var group [mostPartitions]int
	for place := range group {
		group[place] = place
	}
	for _, each := range all {
		op := each.Input.(*operation)
		for _, record := range op.Records {
			if record.Elsewhere == nil {
				continue
			}
			from, to := group[record.Elsewhere.Partition], group[op.Partition]
			for place := range group {
				if group[place] == from {
					group[place] = to
				}
			}
		}
	}
	var parts [mostPartitions][]porcupine.Operation
	for _, each := range all {
		at := group[each.Input.(*operation).Partition]
		parts[at] = append(parts[at], each)
	}
	found := [][]porcupine.Operation{}
	for _, part := range parts {
		if len(part) > 0 {
			found = append(found, part)
		}
	}
	return found
}
