package main

import (
	"encoding/json"

	"github.com/anishathalye/porcupine"
)

const (
	mostPartitions = 4
	mostLocks      = 16

	retry = 44
	never = 87
)

// place is what is known of one partition: where the next record goes, up to where somebody has seen that it
// is committed, and by which offset each lock was last raised (plus one: 0 is never).
type place struct {
	end       int64
	committed int64
	raised    [mostLocks]int64
}

func (p *place) mark(lock int) int64 { return p.raised[lock] - 1 }

func (p *place) knows(end int64) { p.committed = max(p.committed, end) }

// state is of all partitions; those that an operation has nothing to do with stay as they are.
type state [mostPartitions]place

func model() porcupine.Model {
	return porcupine.Model{
		Partition: coupled,
		Init:      func() any { return state{} },
		Step: func(before, input, _ any) (bool, any) {
			after := before.(state)
			return after.take(input.(*operation)), after
		},
		DescribeOperation: func(input, _ any) string { return describe(input.(*operation)) },
	}
}

// take tells whether the operation may have ended as it did in this state, and makes it the state after it.
func (s *state) take(op *operation) bool {
	here := &s[op.Partition]
	if op.Seen != nil {
		here.knows(*op.Seen)
		return *op.Seen <= here.end
	}
	pass := len(op.Records)
	if op.Refused != nil {
		pass = op.Refused.Record // the first one that has to be refused
	}
	for number := range pass {
		if !s.passes(op, number) {
			return false
		}
	}
	if op.Refused != nil {
		return s.justifies(op, op.Refused)
	}
	if *op.Stored != here.end {
		return false
	}
	here.end += int64(len(op.Records))
	for _, each := range op.Records {
		for lock := range mostLocks {
			if each.raises>>lock&1 == 1 {
				here.raised[lock] = here.end
			}
		}
	}
	return true
}

// passes tells whether a record's conditions hold, after the records before it.
func (s *state) passes(op *operation, number int) bool {
	record := op.Records[number]
	if record.Expected != nil && *record.Expected != s[op.Partition].end+int64(number) {
		return false
	}
	for _, each := range record.checks {
		there := &s[each.partition]
		if each.hwm >= there.end || there.mark(each.lock) > each.hwm || op.raisedBefore(number, each) {
			return false
		}
		there.knows(each.hwm + 1)
	}
	return true
}

// raisedBefore tells whether a record before it in the batch raises the lock, and is not of its own request.
func (op *operation) raisedBefore(number int, asked check) bool {
	if asked.partition != op.Partition {
		return false
	}
	own := op.Records[number].Request
	for _, each := range op.Records[:number] {
		if each.raises>>asked.lock&1 == 1 && (own == "" || each.Request != own) {
			return true
		}
	}
	return false
}

// justifies tells whether what the broker said of the record that it refused is so.
func (s *state) justifies(op *operation, refused *refusal) bool {
	record, there := op.Records[refused.Record], &s[refused.Partition]
	switch refused.Reason {
	case "EXPECTED_OFFSET":
		if record.Expected == nil || *record.Expected != refused.Expected || refused.Partition != op.Partition {
			return false
		}
		own := there.end + int64(refused.Record)
		if refused.Error == never {
			return refused.Expected > own
		}
		return refused.Error == retry && refused.Expected < own && refused.Exact && refused.ConflictOffset == there.end-1
	case "AHEAD":
		for _, each := range record.checks {
			if each.partition == refused.Partition && each.hwm == refused.Hwm {
				stable := refused.LastStableOffset
				legal := refused.Error == never && each.hwm >= stable && there.committed <= stable && stable <= there.end
				there.knows(stable)
				return legal
			}
		}
	case "LOCK":
		for _, each := range record.checks {
			if each == (check{refused.Partition, refused.lock, refused.Mode, refused.Hwm}) {
				legal := refused.Error == retry && each.hwm < there.end && s.holds(op, refused, each)
				there.knows(each.hwm + 1)
				return legal
			}
		}
	}
	return false
}

// holds tells whether the lock was raised above the mark. An estimate may say too much, never too little.
func (s *state) holds(op *operation, refused *refusal, asked check) bool {
	there, offset := &s[asked.partition], refused.ConflictOffset
	mark := there.mark(asked.lock)
	if op.raisedBefore(refused.Record, asked) {
		mark = there.end - 1 // of a batch that is refused: nobody will read more than what is there
		return refused.Exact && offset == mark
	}
	if refused.Exact {
		return offset == mark && mark > asked.hwm
	}
	return offset >= mark && offset > asked.hwm && offset < there.end
}

func describe(op *operation) string {
	text, err := json.Marshal(op)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
