package notes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
)

// headerParts is how many messages a change has, on the first of several.
const headerParts = "Rath-Parts"

// pending is a change of several messages, which have sequences in a row, up to the last
// one that was read.
type pending struct {
	key   string
	parts int
	last  uint64
	have  int
	data  []byte
}

// catchUp reads the stream until it has no more of this memory. A message that was replaced
// before it was read appears later as its replacement: so the messages read are the
// contents of the stream at one moment, that of the last request.
func (s *Store) catchUp(ctx context.Context) error {
	if !s.s.Conn.Alone() {
		// A server that only believes it leads may answer the request below.
		led, err := eventlog.AskLeading(ctx, s.s, streams.StreamMemory, "")
		if err != nil {
			return err
		}
		if led.LastSeq == s.at {
			return nil // all of the stream is read
		}
	}
	filter := s.of + "*.*"
	if s.at == 0 {
		if err := s.pages(ctx, filter); err != nil {
			return err
		}
	}
	for {
		m, err := s.s.Messages.LeaderNext(ctx, streams.StreamMemory, filter, s.at+1)
		if errors.Is(err, conn.ErrNoMessage) {
			return nil
		}
		if err == nil {
			err = s.take([]conn.Message{m})
		}
		if err == nil {
			err = s.pages(ctx, filter)
		}
		if err != nil {
			return err
		}
	}
}

// pageNotes is the maximum number of messages of a page, if they are small. For each page
// the server counts the remaining subjects.
const pageNotes = 8192

// pages reads from any replica. It reads the next page while one is processed.
func (s *Store) pages(ctx context.Context, filter string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type read struct {
		page []conn.Message
		err  error
	}
	reads := make(chan read)
	go func(from uint64) {
		defer close(reads)
		for {
			page, err := s.page(ctx, conn.GetRequest{Seq: from, NextBySubject: filter, Batch: pageNotes, MaxBytes: conn.PageBytes})
			select {
			case reads <- read{page, err}:
			case <-ctx.Done():
			}
			if ctx.Err() != nil || err != nil || len(page) == 0 {
				return
			}
			from = page[len(page)-1].Seq + 1
		}
	}(s.at + 1)
	var err error
	for r := range reads {
		if err == nil && r.err == nil {
			r.err = s.take(r.page)
		}
		if err == nil && r.err != nil {
			err = r.err
			cancel() // the goroutine ends before this returns
		}
	}
	return err
}

func (s *Store) page(ctx context.Context, next conn.GetRequest) ([]conn.Message, error) {
	return conn.Retry(ctx, func(ctx context.Context) (page []conn.Message, err error) {
		for m, err := range s.s.Messages.DirectBatch(ctx, streams.StreamMemory, next) {
			if err != nil {
				return nil, err
			}
			page = append(page, m)
		}
		return page, nil
	})
}

// take folds the next messages. It stops before a message that it cannot read.
func (s *Store) take(messages []conn.Message) (err error) {
	var changes []change
	for _, m := range messages {
		var c change
		var whole bool
		if c, whole, err = s.join(m); err != nil {
			err = fmt.Errorf("message %d of stream %s: %w; an empty message on %s, with the rights of a node, gives it up", m.Seq, streams.StreamMemory, err, m.Subject)
			break
		}
		if s.at = m.Seq; whole {
			changes = append(changes, c)
		}
	}
	s.fold(changes)
	return err
}

// join returns the change that a message completes.
func (s *Store) join(m conn.Message) (c change, whole bool, err error) {
	key, number, _ := strings.Cut(strings.TrimPrefix(m.Subject, s.of), ".")
	part, err := strconv.Atoi(number)
	if err != nil {
		return c, false, fmt.Errorf("%w: subject %s", ErrFormat, m.Subject)
	}
	p := s.pending
	s.pending = nil
	if len(m.Data) == 0 {
		return c, false, nil // it was deleted, or had fewer messages the next time
	}
	if part == 0 {
		p = &pending{key: key, parts: 1, last: m.Seq - 1}
		if text := m.Header.Get(headerParts); text != "" {
			if p.parts, err = strconv.Atoi(text); err != nil {
				return c, false, fmt.Errorf("%w: %s messages", ErrFormat, text)
			}
		}
		s.mu.Lock()
		if p.parts > 1 {
			s.parts[key] = p.parts
		} else {
			delete(s.parts, key)
		}
		s.mu.Unlock()
	}
	if p == nil || p.key != key || p.have != part || p.last+1 != m.Seq {
		return c, false, nil // of a change that was replaced
	}
	p.data, p.have, p.last = append(p.data, m.Data...), p.have+1, m.Seq
	if p.have < p.parts {
		s.pending = p
		return c, false, nil
	}
	c, err = decode(p.data)
	return c, err == nil, err
}
