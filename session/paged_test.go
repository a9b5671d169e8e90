package session_test

import (
	"fmt"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// TestPagesOfChunksAlone: a session that takes over the chunks of one with many
// ancestors shares its pages of chunks, and has ancestors of its own.
func TestPagesOfChunksAlone(t *testing.T) {
	w := newWorld(t)
	save := func(s session.Session) session.Session {
		kept, _, pages, err := s.MarshalPaged()
		must.Do(t, err)
		for _, p := range pages {
			must.Do(t, p.Save(func(digest string, part []byte) error { return w.log.SavePage(t.Context(), "t", digest, part) }))
		}
		l, _ := s.Link()
		w.known[l], w.newest[s.Key()] = kept, kept
		return kept
	}
	s := w.open(key("s0"), session.Opening{Kind: session.OpenLeaf}, session.ChunkEvent(session.UserText("first")))
	trunk := s
	for i := range 40 {
		trunk = s
		k := key(fmt.Sprintf("s%d", i+1))
		w.fork(k, session.OpenFork, s)
		s = save(w.commit(k, session.ChunkEvent(session.UserText(fmt.Sprint(i)))))
	}
	join := func(trunk session.Session, policy string, parts ...session.Session) session.Event {
		t.Helper()
		j := must.Get(session.JoinOf(trunk, policy, "", 0, parts...))(t)
		return session.JoinedEvent(j)
	}
	other := w.open(key("other"), session.Opening{Kind: session.OpenLeaf}, session.ChunkEvent(session.UserText("other")))
	adopted := join(trunk, session.JoinAdopt, s)
	both := join(session.Session{}, session.JoinConcatenate, s, other)
	again := join(other, session.JoinReplace, s)
	w.paged(w.commit(trunk.Key(), adopted))
	w.paged(w.open(key("both"), session.Opening{Kind: session.OpenMerge}, both))
	w.paged(w.commit(other.Key(), again))
}
