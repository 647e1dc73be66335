package line

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// Assignment is what a group's member owns, as its client's callbacks tell from their own goroutines.
type Assignment struct {
	mutex   sync.Mutex
	owned   map[Owned]bool
	changed chan struct{}
}

// NewAssignment owns nothing yet.
func NewAssignment() *Assignment {
	return &Assignment{owned: map[Owned]bool{}, changed: make(chan struct{}, 1)}
}

// Add and Remove are a rebalance's two halves.
func (a *Assignment) Add(partitions map[string][]int32) { a.change(partitions, true) }

func (a *Assignment) Remove(partitions map[string][]int32) { a.change(partitions, false) }

func (a *Assignment) change(partitions map[string][]int32, owned bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			if owned {
				a.owned[Owned{topic, number}] = true
			} else {
				delete(a.owned, Owned{topic, number})
			}
		}
	}
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// List is what is owned now.
func (a *Assignment) List() []Owned {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	found := []Owned{}
	for each := range a.owned {
		found = append(found, each)
	}
	return found
}

// AwaitChange returns when there was a change since the last call, or the time is over.
func (a *Assignment) AwaitChange(wait time.Duration) {
	select {
	case <-a.changed:
	case <-time.After(wait):
	}
}

// Log says something where it does not disturb the answers.
func Log(what any) { fmt.Fprintln(os.Stderr, what) }
