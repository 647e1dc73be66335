package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/bbolt"
	bolt "go.etcd.io/bbolt/errors"
)

const (
	openTimeout = 2 * time.Second
	holdPoll    = 5 * time.Millisecond
	markBytes   = 24
)

var (
	marksBucket   = []byte("marks")   // log id → player_term, target_term, position
	appliedBucket = []byte("applied") // 1, 2, 3, … → a record in JSON, in the order in which they were applied
)

// Store is one file, with the marks and what the records changed, which here is a list of them. One process has it open
// at a time: another waits for it, and gives up after a while.
type Store struct {
	db   *bbolt.DB
	hold string // while there is a file of this name, no transaction of records ends
}

// Open opens or makes a store. With readOnly nothing is made.
func Open(path, hold string, readOnly bool) (*Store, error) {
	if _, err := os.Stat(path); readOnly && err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: openTimeout, ReadOnly: readOnly})
	if errors.Is(err, bolt.ErrTimeout) {
		return nil, fmt.Errorf("%s: another process has it open", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	store := &Store{db, hold}
	if readOnly {
		return store, nil
	}
	return store, db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists(marksBucket); err != nil {
			return err
		}
		_, err := tx.CreateBucketIfNotExists(appliedBucket)
		return err
	})
}

// Close waits for the transaction that runs.
func (s *Store) Close() error { return s.db.Close() }

// Greet persists the terms of a stream, and says where the log's mark stands. Where there is no mark yet, it is made, so
// that the target begins at first. StaleTerms where the store has these terms, or newer ones.
//
// Transactions run one after the other: once this has returned, nothing with older terms is stored any more.
func (s *Store) Greet(logID string, terms Terms, first int64) (Mark, error) {
	var mark Mark
	return mark, s.db.Update(func(tx *bbolt.Tx) error {
		stored, found := load(tx, logID)
		if !stored.Terms.Less(terms) {
			return StaleTerms{stored.Terms}
		}
		mark = Mark{terms, stored.Position}
		if !found {
			mark.Position = first - 1
		}
		return save(tx, logID, mark)
	})
}

// Apply stores records and the mark, both or neither. StaleTerms where the store has other terms than the mark by now.
func (s *Store) Apply(logID string, mark Mark, records []Applied) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		if stored, _ := load(tx, logID); stored.Terms != mark.Terms {
			return StaleTerms{stored.Terms}
		}
		applied := tx.Bucket(appliedBucket)
		for _, record := range records {
			line, err := json.Marshal(record)
			if err != nil {
				return err
			}
			number, err := applied.NextSequence()
			if err != nil {
				return err
			}
			if err := applied.Put(binary.BigEndian.AppendUint64(nil, number), line); err != nil {
				return err
			}
		}
		s.wait()
		return save(tx, logID, mark)
	})
}

// Dump writes what was applied, in its order, as JSON lines.
func (s *Store) Dump(out io.Writer) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		applied := tx.Bucket(appliedBucket)
		if applied == nil {
			return nil // killed before the store was made
		}
		return applied.ForEach(func(_, line []byte) error {
			_, err := fmt.Fprintf(out, "%s\n", line)
			return err
		})
	})
}

func (s *Store) wait() {
	for s.hold != "" {
		if _, err := os.Stat(s.hold); err != nil {
			return
		}
		time.Sleep(holdPoll)
	}
}

func load(tx *bbolt.Tx, logID string) (mark Mark, found bool) {
	data := tx.Bucket(marksBucket).Get([]byte(logID))
	if len(data) != markBytes {
		return Mark{}, false
	}
	number := func(at int) int64 { return int64(binary.BigEndian.Uint64(data[at:])) }
	return Mark{Terms{number(0), number(8)}, number(16)}, true
}

func save(tx *bbolt.Tx, logID string, mark Mark) error {
	data := make([]byte, 0, markBytes)
	for _, number := range []int64{mark.Terms.Player, mark.Terms.Target, mark.Position} {
		data = binary.BigEndian.AppendUint64(data, uint64(number))
	}
	return tx.Bucket(marksBucket).Put([]byte(logID), data)
}
