package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// maxLoopState is the maximum size of the state of a loop, in bytes.
const maxLoopState = 64 << 10

// iterationData is the value of a step that opens a loop, or ends an iteration of it.
type iterationData struct {
	From  string             `json:"from"`
	More  bool               `json:"more"`
	State string             `json:"state"`
	Tags  *map[string]string `json:"tags"`
}

// loopMark is a loop of a run in one log.
type loopMark struct {
	next  int    // the number of its next iteration
	state string // digest of the newest state
	more  bool   // another iteration follows
}

// looped checks the step that opens a loop, or ends an iteration: each iteration begins with
// the state that the one before ended with.
func (r *logRun) looped(f *folding, d *doneData, g *runState) {
	if d.Code != "" {
		return
	}
	v, ok := read[iterationData](d.Value)
	what := fmt.Sprintf("step.done %s (%s)", d.Path, d.Kind)
	f.a.check(Format, ok && json.Valid([]byte(v.State)) && len(v.State) <= maxLoopState && (v.Tags == nil || maps.Equal(*v.Tags, g.tags)),
		f.says(d.Run, fmt.Sprintf("a state of a loop, JSON of at most %d bytes, and the tags of the run", maxLoopState), what))
	sum := sha256.Sum256([]byte(v.State))
	state := hex.EncodeToString(sum[:16])
	if d.Kind == "loop" {
		if r.loops == nil {
			r.loops = map[string]*loopMark{}
		}
		r.loops[d.Path] = &loopMark{state: state, more: true}
		return
	}
	path, number, _ := cutLast(d.Path, ".")
	n, err := strconv.Atoi(number)
	l := r.loops[path]
	if l == nil && g.resumes.Run != "" { // a run before this one opened it
		l = &loopMark{n, v.From, true}
		if r.loops == nil {
			r.loops = map[string]*loopMark{}
		}
		r.loops[path] = l
	}
	if l == nil {
		l = &loopMark{}
	}
	f.a.check(ReadClaim, err == nil && l.more && n == l.next, f.says(d.Run, fmt.Sprintf("iteration %d of the loop at step %s, which goes on: %t", l.next, path, l.more), what))
	f.a.check(ReadClaim, v.From == l.state, f.says(d.Run, "iteration "+d.Path+" to begin with the state "+short(l.state)+" that the one before ended with", short(v.From)))
	l.next, l.state, l.more = n+1, state, v.More
	maps.DeleteFunc(r.loops, func(p string, _ *loopMark) bool { return strings.HasPrefix(p, d.Path+".") })
}

// iterates checks that no step follows the end of its iteration.
func (r *logRun) iterates(f *folding, id, path, what string) {
	for at, ok := path, len(r.loops) > 0; ok; {
		var number string
		if at, number, ok = cutLast(at, "."); r.loops[at] == nil {
			continue
		}
		n, err := strconv.Atoi(number)
		f.a.check(ReadClaim, err != nil || n >= r.loops[at].next, f.says(id, fmt.Sprintf("no step of iteration %d of the loop at step %s, which has ended", n, at), what))
	}
}
