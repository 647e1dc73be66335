package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lockstep/target/playerv1"
)

// mostWaiting is as many batches as a player has unacknowledged at most, if it is set up as usual. So what is received
// while a transaction runs finds room, and a heartbeat behind it is read at once. How many bytes, the player bounds.
const mostWaiting = 10_000

type play = playerv1.Target_PlayServer

// Service is this target: all its streams, of which one for each log counts.
type Service struct {
	playerv1.UnimplementedTargetServer
	store   *Store
	mutex   sync.Mutex
	serving map[string]*session // by log id: that which was greeted last
}

// NewService serves out of a store.
func NewService(store *Store) *Service {
	return &Service{store: store, serving: map[string]*session{}}
}

// Play is one stream. It alone sends; others receive and store for it until it returns.
func (s *Service) Play(stream play) error {
	session, err := s.greeted(stream)
	if err != nil {
		return ended(stream, err)
	}
	greeted := &playerv1.Greeted{Position: session.mark.Position}
	if err := stream.Send(&playerv1.FromTarget{Message: &playerv1.FromTarget_Greeted{Greeted: greeted}}); err != nil {
		return err
	}
	go session.receive(stream)
	go session.storeAll(stream.Context(), s.store)
	for {
		select {
		case err := <-session.ended:
			return ended(stream, err)
		case <-session.news:
			said := &playerv1.Acknowledged{Position: session.stored.Load()}
			message := &playerv1.FromTarget{Message: &playerv1.FromTarget_Acknowledged{Acknowledged: said}}
			if err := stream.Send(message); err != nil {
				return err
			}
		}
	}
}

func (s *Service) greeted(stream play) (*session, error) {
	message, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	hello := message.GetHello()
	if hello == nil || hello.GetLogId() == "" || hello.GetFirstPosition() < 0 {
		return nil, status.Error(codes.InvalidArgument, "the first message is a Hello, with a log_id and a first_position")
	}
	terms := Terms{hello.GetPlayerTerm(), hello.GetTargetTerm()}

	s.mutex.Lock() // greetings are answered one after the other, as they are persisted
	defer s.mutex.Unlock()
	mark, err := s.store.Greet(hello.GetLogId(), terms, hello.GetFirstPosition())
	if err != nil {
		return nil, err
	}
	if older := s.serving[hello.GetLogId()]; older != nil {
		older.end(StaleTerms{terms})
	}
	session := newSession(hello.GetLogId(), mark)
	s.serving[hello.GetLogId()] = session
	return session, nil
}

// ended is how a stream ends for some reason: without an error where the player was told in a message.
func ended(stream play, reason error) error {
	var stale StaleTerms
	if errors.As(reason, &stale) {
		said := &playerv1.Stale{PlayerTerm: stale.Newest.Player, TargetTerm: stale.Newest.Target}
		return stream.Send(&playerv1.FromTarget{Message: &playerv1.FromTarget_Stale{Stale: said}})
	}
	if errors.Is(reason, io.EOF) {
		return nil
	}
	return reason
}

// session is what one stream has received, and has stored of it.
type session struct {
	logID  string
	mark   Mark // of the greeting
	stored atomic.Int64
	work   chan work
	news   chan struct{} // there is something to acknowledge
	ended  chan error    // why to end; the first reason counts
}

// work is what one batch changes, up to a position.
type work struct {
	position int64
	records  []Applied
}

func newSession(logID string, mark Mark) *session {
	made := &session{
		logID: logID,
		mark:  mark,
		work:  make(chan work, mostWaiting),
		news:  make(chan struct{}, 1),
		ended: make(chan error, 1),
	}
	made.stored.Store(mark.Position)
	return made
}

func (s *session) end(reason error) {
	select {
	case s.ended <- reason:
	default:
	}
}

// acknowledge says what is stored, once for all that asked while nothing could be said.
func (s *session) acknowledge() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *session) receive(stream play) {
	received := s.mark.Position
	for {
		message, err := stream.Recv()
		if err == nil {
			switch {
			case message.GetBatch() != nil:
				received, err = s.take(stream.Context(), received, message.GetBatch())
			case message.GetHeartbeat() != nil:
				s.acknowledge()
			default:
				err = status.Error(codes.InvalidArgument, "after the Hello come batches and heartbeats")
			}
		}
		if err != nil {
			s.end(err)
			return
		}
	}
}

// take hands on what is new in a batch, and returns up to where it was received.
func (s *session) take(ctx context.Context, received int64, batch *playerv1.Batch) (int64, error) {
	parts, err := Following(received, batch)
	if err != nil {
		return received, err
	}
	if len(parts) == 0 {
		s.acknowledge()
		return received, nil
	}
	next := work{position: parts[len(parts)-1].GetPosition()}
	for _, part := range parts {
		if len(part.GetRecords()) == 0 {
			continue // a dummy
		}
		records, err := Records(s.logID, part)
		if err != nil {
			return received, status.Error(codes.InvalidArgument, err.Error())
		}
		next.records = append(next.records, records...)
	}
	select {
	case s.work <- next:
		return next.position, nil
	case <-ctx.Done():
		return received, ctx.Err()
	}
}

// storeAll stores together what has come while the transaction before ran.
func (s *session) storeAll(ctx context.Context, store *Store) {
	for {
		var next work
		select {
		case next = <-s.work:
		case <-ctx.Done():
			return
		}
		for more := len(s.work); more > 0; more-- {
			later := <-s.work
			next.position = later.position
			next.records = append(next.records, later.records...)
		}
		if err := store.Apply(s.logID, Mark{s.mark.Terms, next.position}, next.records); err != nil {
			s.end(err)
			return
		}
		s.stored.Store(next.position)
		s.acknowledge()
	}
}
