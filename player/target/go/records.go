package main

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/target/playerv1"
)

const (
	batchHeaderBytes  = 61
	lengthAt          = 8 // of what follows it
	lengthEnd         = 12
	magicAt           = 16
	magic             = 2
	countAt           = 57
	controlRecordsToo = true // there are none, and one that came would have to be counted
)

var decompressor = kgo.DefaultDecompressor()

// Applied is one record as this target stores it, and as -dump prints it: keys and values in base64, or null.
type Applied struct {
	LogID    string `json:"log_id"`
	Position int64  `json:"position"`
	Offset   int64  `json:"offset"`
	Key      []byte `json:"key"`
	Value    []byte `json:"value"`
	// Where the log is several partitions: the one that the offset is of.
	Partition *int32 `json:"partition,omitempty"`
}

// Records decodes one record batch of Kafka's (magic 2, compressed with any of its codecs), whole or not at all.
//
// franz-go checks the checksum and decompresses. It takes what it is given for the answer to a fetch, which may end
// anywhere and is no error then; so size and number of records are compared here.
func Records(logID string, part *playerv1.Part) ([]Applied, error) {
	position, batch := part.GetPosition(), part.GetRecords()
	if len(batch) < batchHeaderBytes || batch[magicAt] != magic {
		return nil, fmt.Errorf("position %d: no record batch of magic %d", position, magic)
	}
	if said := int64(binary.BigEndian.Uint32(batch[lengthAt:])) + lengthEnd; said != int64(len(batch)) {
		return nil, fmt.Errorf("position %d: a record batch of %d bytes in %d", position, said, len(batch))
	}
	fetched := kmsg.NewFetchResponseTopicPartition()
	fetched.RecordBatches = batch
	options := kgo.ProcessFetchPartitionOpts{KeepControlRecords: controlRecordsToo}
	found, _ := kgo.ProcessFetchPartition(options, &fetched, decompressor, nil)
	if found.Err != nil {
		return nil, fmt.Errorf("position %d: %w", position, found.Err)
	}
	if said := binary.BigEndian.Uint32(batch[countAt:]); int64(said) != int64(len(found.Records)) {
		return nil, fmt.Errorf("position %d: %d records of %d", position, len(found.Records), said)
	}
	records := make([]Applied, len(found.Records))
	for at, record := range found.Records {
		records[at] = Applied{logID, position, record.Offset, record.Key, record.Value, part.Partition}
	}
	return records, nil
}
