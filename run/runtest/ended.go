package runtest

import (
	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// testEnded: the event that ends a run says what the session is after it, with
// what the same commit adds, and its files.
func testEnded(s *suite) {
	g := s.running(s.submit("r1"))
	head := blob.Sum([]byte("files"))
	placed := session.PlacedEvent(session.Placement{Backend: "local", Epoch: g.Epoch, Head: head, Isolation: "landlock"})
	if err := s.store.Apply(s.Context(), s.says("r1", "m1", "by the way")); err != nil {
		s.Fatal(err)
	}
	a, err := s.end(g, g.Session, run.Succeeded, session.ChunkEvent(session.AssistantText("done")), placed)
	if err != nil {
		s.Fatal(err)
	}
	s.wantTexts("the session", a.Session, "hello", "done", "by the way")
	e := last[run.Ended](s, s.home, run.KindEnded)
	if want := a.Session.Ref().Version; e.Version != want || want != 4 || e.Head != head {
		s.Errorf("ended with version %d and files %s, the session is at %d with %s", e.Version, e.Head.Short(), want, a.Session.Placement().Head.Short())
	}
	g = s.running(s.submit("r2"))
	if err := s.cancel(s.home, "r2"); err != nil {
		s.Fatal(err)
	}
	if _, err := s.end(g, g.Session, run.Cancelled); err != nil {
		s.Fatal(err)
	}
	if e := last[run.Ended](s, s.home, run.KindEnded); e.State != run.Cancelled || e.Version != 4 || e.Head != head {
		s.Errorf("cancelled with version %d and files %s", e.Version, e.Head.Short())
	}
}
