package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestFormerWait: a question of a log that gave it no expiry stands, and is
// answered.
func TestFormerWait(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "golden", "former2.commits.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	log := &commitlog.Memory{}
	var asked session.Key
	for line := range bytes.Lines(file) {
		c, err := commitlog.Decode(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		last, err := log.Last(t.Context(), c.Key)
		if err != nil && c.Seq > 1 {
			t.Fatal(err)
		}
		if c.Key == asked {
			continue // what came after the question
		}
		if _, err := log.Append(t.Context(), last.At, c); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(line, []byte(`"kind":"approval"`)) {
			asked = c.Key
		}
	}
	store := NewStore(log, &StoreOptions{Now: func() time.Time { return time.UnixMilli(1_700_000_000_000).AddDate(10, 0, 0) }})
	if err := store.Apply(t.Context(), Signal{To: asked, Tick: true}); !errors.Is(err, run.ErrState) {
		t.Errorf("ten years later: %v", err)
	}
	if err := store.Apply(t.Context(), Signal{To: asked, Run: "r4", Received: &SignalReceived{Kind: Approve, Path: "1"}}); err != nil {
		t.Error(err)
	}
}

// TestWokenOnce: of each kind of wakeup the commit either offers it or claims it,
// never both, and wakes count by one.
func TestWokenOnce(t *testing.T) {
	offered, claimed := 0, 0
	for seed := range uint64(8) {
		h := newTheatre(t, seed)
		for i := range 40 { // runs, one after the other, each in a session of its own
			k, id := session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("s", i))}, run.ID(fmt.Sprint("r", i))
			task := &Task{ID: id, Workflow: "w", Session: k}
			if err := h.do(k, func(w *StateMachine) error {
				_, err := w.Claim(Claim{Session: k, Home: k, Run: id, Task: task, Open: session.Opening{Kind: session.OpenLeaf}}, h.now)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			for range 50 {
				if r := h.writer(k).RunState().Run(id); r.State == run.Queued {
					h.claim(h.writer(k), r)
				} else {
					h.outside(h.writer(k), id)
				}
			}
		}
		wakes := map[run.ID]uint64{}
		for _, k := range h.log.Keys() {
			for e, err := range h.log.Read(t.Context(), k, commitlog.Position{}) {
				if err != nil {
					t.Fatal(err)
				}
				work, err := Followups(e, Facts(e.Commit))
				if err != nil {
					t.Fatal(err)
				}
				for i, ev := range e.Commit.Events {
					v, err := Decode[SignalReceived](ev)
					if ev.Kind != KindSignalReceived || err != nil || v.Wake == 0 {
						continue
					}
					if wakes[v.Run]++; v.Wake != wakes[v.Run] {
						t.Fatalf("seed %d: %s, commit %d: wake %d is the %d. one", seed, k, e.Commit.Seq, v.Wake, wakes[v.Run])
					}
					offers, claims := 0, 0
					for _, w := range work {
						if w.Task != nil && w.Task.ID == v.Run {
							offers++
						}
					}
					for _, after := range e.Commit.Events[i:] {
						if c, err := Decode[Claimed](after); after.Kind == KindClaimed && err == nil && c.Run == v.Run {
							claims++
						}
					}
					if offers+claims != 1 {
						t.Fatalf("seed %d: %s, commit %d: woken, it is offered %d times and claimed %d times", seed, k, e.Commit.Seq, offers, claims)
					}
					offered, claimed = offered+offers, claimed+claims
				}
			}
		}
	}
	t.Logf("%d offers, %d claims", offered, claimed)
	if offered < 100 || claimed < 100 {
		t.Errorf("%d offers and %d claims: the test shows little", offered, claimed)
	}
}
