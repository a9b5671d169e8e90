//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// look reads the newest version of a session that a run has ended with.
func (l *clients) look(ctx context.Context) {
	l.mu.Lock()
	var id string
	if len(l.heads) > 0 {
		id = l.heads[l.random.IntN(len(l.heads))].Session
		if l.random.IntN(2) == 0 {
			id = fmt.Sprintf("shared%d", l.random.IntN(names))
		}
	}
	after := max(0, l.length[id]-2)
	l.mu.Unlock()
	if id == "" {
		return
	}
	start := time.Now()
	var data []byte
	err := l.ask(ctx, question{kind: "session read", moot: l.unused(id), send: func(ctx context.Context) (err error) {
		data, err = l.request(ctx, "rath.query.default.session", map[string]any{"session": id, "limit": 20, "after": after})
		return err
	}})
	var s struct {
		Session string `json:"session"`
		Version int    `json:"version"`
		Total   int    `json:"total"`
		Chunks  []row  `json:"chunks"`
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil && strings.Contains(err.Error(), `"code":"not_found"`) && strings.HasPrefix(id, "shared") {
		return // no run has worked on it yet
	}
	if err != nil {
		if ctx.Err() == nil {
			l.write("head", start, id, err)
		}
		return
	}
	h := head{Session: s.Session, Start: start.Sub(l.began), End: time.Since(l.began), Version: s.Version, Asked: true}
	l.mu.Lock()
	l.heads = append(l.heads, h)
	l.asked++
	l.length[id] = s.Total
	for _, r := range s.Chunks {
		l.row(s.Session, r)
	}
	l.mu.Unlock()
	l.write("head", start, h, nil)
}

// row is a chunk of a session.
type row struct {
	Index int    `json:"index"`
	Kind  string `json:"kind"`
	Text  string `json:"text"`
	Run   string `json:"run"`
	Step  string `json:"step"`
	Time  int64  `json:"time_ms"`
}

// chunks reads all chunks of a session, trying again for as long as ctx allows.
func (l *clients) chunks(ctx context.Context, id string) ([]row, error) {
	var all []row
	for {
		data, err := l.request(ctx, "rath.query.default.session", map[string]any{"session": id, "after": len(all)})
		var s struct {
			Chunks []row `json:"chunks"`
			Next   int   `json:"next"`
		}
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			select {
			case <-ctx.Done():
				return nil, err
			case <-time.After(100 * time.Millisecond):
				continue
			}
		}
		if all = append(all, s.Chunks...); s.Next == 0 {
			return all, nil
		}
	}
}

// row records a row at an index of a session: it never changes. It is called with the lock
// held.
func (l *clients) row(id string, r row) {
	if l.rows[id] == nil {
		l.rows[id] = map[int]string{}
	}
	text := fmt.Sprintf("%s %q of %s/%s at %d", r.Kind, r.Text, r.Run, r.Step, r.Time)
	if was := l.rows[id][r.Index]; was != "" && was != text {
		l.broken = append(l.broken, fmt.Sprintf("chunk %d of session %s was read as %s and as %s", r.Index, id, was, text))
	}
	l.rows[id][r.Index] = text
}
