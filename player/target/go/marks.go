package main

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lockstep/target/playerv1"
)

// Terms say whose stream it is. They are compared as a pair, and what is stored only grows.
type Terms struct{ Player, Target int64 }

// Less tells whether other is the newer pair.
func (t Terms) Less(other Terms) bool {
	return t.Player < other.Player || t.Player == other.Player && t.Target < other.Target
}

// Mark is what is stored for each log beside what its records changed: everything up to Position is stored.
type Mark struct {
	Terms    Terms
	Position int64
}

// StaleTerms is why a stream ends: one with the terms Newest was greeted.
type StaleTerms struct{ Newest Terms }

func (e StaleTerms) Error() string {
	return fmt.Sprintf("stream %d.%d has been greeted", e.Newest.Player, e.Newest.Target)
}

// Following returns the parts of a batch that were not received before, where received is the position of the last one
// that was. What it leaves out before them are duplicates; a batch that leaves a gap is refused as a whole.
func Following(received int64, batch *playerv1.Batch) ([]*playerv1.Part, error) {
	parts, previous := batch.GetParts(), batch.GetPreviousPosition()
	for at, part := range parts {
		if at > 0 && part.GetPosition() <= parts[at-1].GetPosition() {
			return nil, status.Errorf(codes.InvalidArgument, "position %d comes after %d",
				part.GetPosition(), parts[at-1].GetPosition())
		}
	}
	for len(parts) > 0 && parts[0].GetPosition() <= received {
		previous = parts[0].GetPosition()
		parts = parts[1:]
	}
	if len(parts) > 0 && previous != received {
		return nil, status.Errorf(codes.FailedPrecondition, "a gap after %d: %d came, which follows %d",
			received, parts[0].GetPosition(), previous)
	}
	return parts, nil
}
