package journaltest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/transcript"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestProtocol plays the transcripts of a folder in bubbles of testing/synctest, and
// with update rewrites them. open returns the store of a node over a log that all nodes
// of a transcript share; it is called once per node and may register its own cleanup.
func TestProtocol(t *testing.T, dir string, update bool, open func(t *testing.T, log commitlog.Log, incarnation string) journal.Store) {
	testProtocol(t, dir, synctest.Test, &transcript.Options{Update: update}, open)
}

// TestRestless plays the transcripts for a store that releases its sessions at every
// opportunity. It ignores the openings of writers and their epochs. It skips
// transcripts in which time passes, or that depend on a node's memory.
func TestRestless(t *testing.T, dir string, open func(t *testing.T, log commitlog.Log, incarnation string) journal.Store) {
	same := func(got, want string) bool {
		return opening.ReplaceAllString(got, "") == opening.ReplaceAllString(want, "")
	}
	testProtocol(t, dir, nil, &transcript.Options{Same: same}, open)
}

// testProtocol plays transcripts in bubbles; nil is for a restless store.
func testProtocol(t *testing.T, dir string, bubble func(*testing.T, func(*testing.T)), o *transcript.Options, open func(*testing.T, commitlog.Log, string) journal.Store) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in %s: %v", dir, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		text := must.Get(os.ReadFile(file))(t)
		play := bubble
		if play == nil {
			if slices.Contains(remembering, name) || strings.Contains(string(text), "\n> sleep ") {
				continue
			}
			play = func(t *testing.T, f func(*testing.T)) { f(t) }
		}
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T) {
				s := &stage{
					T: t, log: &commitlog.Memory{}, open: open, nodes: map[string]journal.Store{}, shown: map[session.ID]uint64{},
					values: map[string]session.Session{}, grants: map[string]*journal.ClaimResult{}, homes: map[run.ID]session.ID{},
				}
				transcript.Play(t, file, o, s.play)
			})
		})
	}
}

// prefix matches the prefixes that the layers add to an error.
var prefix = regexp.MustCompile(`^((journal|run|actors): |session: resolve \S+ )+`)

// hash matches the beginning of a commit's hash in an error.
var hash = regexp.MustCompile(`\([0-9a-f]{8}\)`)

// remembering are the transcripts that depend on a node's memory.
var remembering = []string{"archive", "review", "takeover", "waits"}

// opening matches the text of an answer about the writer's incarnation.
var opening = regexp.MustCompile(`(?m)^  writer\.opened.*\n| epoch=\d+`)

const tenant = session.DefaultTenant

// stage is the environment of a transcript: nodes over one log.
type stage struct {
	*testing.T
	log    commitlog.Log
	open   func(t *testing.T, log commitlog.Log, incarnation string) journal.Store
	nodes  map[string]journal.Store
	logs   []session.ID // in the order of their mention
	shown  map[session.ID]uint64
	values map[string]session.Session      // by node and session: the newest that the node was answered with
	grants map[string]*journal.ClaimResult // by node and run
	homes  map[run.ID]session.ID
	work   []journal.Work // the follow-ups of the commits
	muted  bool
	out    strings.Builder
}

// command is a command of a transcript, without its verb.
type command struct {
	node  string
	store journal.Store
	plain []string
	named map[string]string
	words []string
}

// arg returns the n-th word, "" if there is none.
func (c *command) arg(n int) string {
	if n < len(c.plain) {
		return c.plain[n]
	}
	return ""
}

func (c *command) run() run.ID { return run.ID(c.arg(0)) }

// take returns a named argument and removes it, so that the others can be set as
// fields.
func (c *command) take(name, otherwise string) string {
	v, ok := c.named[name]
	if delete(c.named, name); !ok {
		return otherwise
	}
	return v
}

// has reports whether a word is there, and removes it.
func (c *command) has(word string) bool {
	i := slices.Index(c.plain, word)
	if i >= 0 {
		c.plain = slices.Delete(c.plain, i, i+1)
	}
	return i >= 0
}

// play carries out one line of a transcript.
func (s *stage) play(line string) string {
	s.out.Reset()
	words := transcript.Words(line)
	switch words[0] {
	case "sleep":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(d)
		return ""
	case "times":
		return s.times(words[1], strings.Join(strings.Fields(line)[2:], " "))
	case "fold":
		s.fold(run.ID(words[1]))
		return s.out.String()
	}
	verb, ok := verbs[words[1]]
	if !ok {
		s.Fatalf("verb %q: there is none", words[1])
	}
	c := &command{node: words[0], store: s.node(words[0]), words: words[2:]}
	c.plain, c.named = transcript.Args(words[2:])
	var answer strings.Builder
	err := verb(s, c, &answer)
	s.commits()
	s.out.WriteString(answer.String())
	if err != nil {
		fmt.Fprintf(&s.out, "error %s: %s\n", run.CodeOf(err), prefix.ReplaceAllString(hash.ReplaceAllString(err.Error(), "(hash)"), ""))
	}
	return s.out.String()
}

// times repeats a line, with # for the number of the repetition, and shows the number
// of commits and the last answer.
func (s *stage) times(n, line string) string {
	most, err := strconv.Atoi(n)
	if err != nil {
		s.Fatal(err)
	}
	before := 0
	for _, id := range s.logs {
		before += int(s.shown[id])
	}
	var last string
	s.muted = true
	for i := range most {
		last = s.play(strings.ReplaceAll(line, "#", strconv.Itoa(i)))
	}
	s.muted = false
	after := 0
	for _, id := range s.logs {
		after += int(s.shown[id])
	}
	return fmt.Sprintf("%d commits\n%s", after-before, last)
}

func (s *stage) node(name string) journal.Store {
	if s.nodes[name] == nil {
		s.nodes[name] = s.open(s.T, s.log, name)
	}
	return s.nodes[name]
}

func (s *stage) key(id session.ID) session.Key {
	if !slices.Contains(s.logs, id) {
		s.logs = append(s.logs, id)
	}
	return session.Key{Tenant: tenant, ID: id}
}

// home returns the home session of a run.
func (s *stage) home(id run.ID) session.Key {
	if h, ok := s.homes[id]; ok {
		return s.key(h)
	}
	return s.key("home")
}

// in returns the session that a command names, or the home of its run.
func (s *stage) in(c *command) session.Key {
	if id := c.take("in", ""); id != "" {
		return s.key(session.ID(id))
	}
	return s.home(c.run())
}

func (s *stage) value(node string, k session.Key) session.Session {
	if v, ok := s.values[node+"/"+string(k.ID)]; ok {
		return v
	}
	return session.Open(k, k.ID)
}

func (s *stage) keep(node string, v session.Session) { s.values[node+"/"+string(v.Key().ID)] = v }

func (s *stage) grant(node string, id run.ID) *journal.ClaimResult {
	g := s.grants[node+"/"+string(id)]
	if g == nil {
		s.Fatalf("node %s has not claimed %s", node, id)
	}
	return g
}

// entries reads a log.
func (s *stage) entries(k session.Key) (all []commitlog.Entry) {
	s.Helper()
	for e, err := range s.log.Read(s.Context(), k, commitlog.Position{}) {
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// commits shows the new commits in the logs, and their follow-ups.
func (s *stage) commits() {
	s.Helper()
	for _, id := range s.logs {
		for _, e := range s.entries(s.key(id)) {
			if e.At.Seq <= s.shown[id] {
				continue
			}
			s.shown[id] = e.At.Seq
			work, err := journal.Followups(e, journal.Facts(e.Commit))
			if err != nil {
				s.Fatal(err)
			}
			if s.muted {
				s.work = append(s.work, work...)
				continue
			}
			s.out.WriteString(commitText(e))
			for _, w := range work {
				s.work = append(s.work, w)
				fmt.Fprintf(&s.out, "  -> %d: %s\n", len(s.work), workText(w))
			}
		}
	}
}

// made demands that an answer is marked with the newest commit of its log.
func (s *stage) made(v session.Session) {
	s.Helper()
	e, err := s.log.Last(s.Context(), v.Key())
	if l, ok := v.Link(); err != nil || !ok || l.Seq != e.At.Seq || l.Hash != e.At.Hash || l.Token != e.At.Token {
		s.Errorf("%s is made by %+v, the newest commit is %+v (%v)", v.Ref(), l, e.At, err)
	}
}

// plain is a log without snapshots.
type plain struct{ commitlog.Log }

// fold shows a run's state as readers derive it, from the log and from a snapshot of
// it.
func (s *stage) fold(id run.ID) {
	s.Helper()
	k := s.home(id)
	var first string
	for i, log := range []commitlog.Log{plain{s.log}, s.log} {
		w, err := journal.LoadStateMachine(s.Context(), log, journal.NewValues(log), k, "reader")
		if err != nil {
			s.Fatal(err)
		}
		r := w.RunState().Run(id)
		if r == nil {
			s.Fatalf("run %s is not in the log of %s", id, k)
		}
		got := recordText(r)
		if first == "" {
			first = got
			s.out.WriteString(got)
		}
		if used := w.SinceSnapshot() == 0; got != first || used != (i > 0) {
			s.Errorf("the log says\n%sits snapshot, which is used: %v,\n%s", first, used, got)
		}
		snapshot, err := w.Snapshot()
		if err != nil {
			s.Fatal(err)
		}
		if err := snapshot.Save(s.Context(), s.log); err != nil {
			s.Fatal(err)
		}
	}
}
