package models

import (
	"cmp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/llm"
)

// Retries bound the requests for one answer of a model: their number, the pause before
// the second one, and the time within which a step starts requests. 0 is the node's
// default.
type Retries struct {
	Attempts      int
	Pause, Within time.Duration
}

// The bounds of Retries.
const (
	maxAttempts = 20
	minPause    = 10 * time.Millisecond
	maxPause    = time.Minute
	minWithin   = time.Second
	maxWithin   = 24 * time.Hour
)

// defaults fills unset fields from others.
func (r *Retries) defaults(others Retries) {
	r.Attempts = cmp.Or(r.Attempts, others.Attempts)
	r.Pause, r.Within = cmp.Or(r.Pause, others.Pause), cmp.Or(r.Within, others.Within)
}

// retries reads the retries of a model, or of all.
func (p *parser) retries(n *yaml.Node, what string) (r Retries) {
	what += ": retries"
	before := p.Mistakes()
	p.Fields(n, what, map[string]func(*yaml.Node){
		"attempts": func(n *yaml.Node) {
			v, err := strconv.Atoi(n.Value)
			if err != nil || v < 1 || v > maxAttempts {
				p.Fail(n.Line, "%s: attempts: %q: want a whole number of requests for an answer, 1 to %d", what, llm.Clip(n.Value, 40), maxAttempts)
				return
			}
			r.Attempts = v
		},
		"pause": p.length(&r.Pause, what, "pause", minPause, maxPause), "within": p.length(&r.Within, what, "within", minWithin, maxWithin),
	})
	if r == (Retries{}) && p.Mistakes() == before {
		p.Fail(n.Line, "%s: want attempts, pause or within", what)
	}
	return r
}

// length reads a time into to.
func (p *parser) length(to *time.Duration, what, name string, least, most time.Duration) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v, err := time.ParseDuration(n.Value)
		if err != nil || v < least || v > most {
			p.Fail(n.Line, "%s: %s: %q: want a time such as 500ms, 2s or 10m, from %v to %v", what, name, llm.Clip(n.Value, 40), least, most)
			return
		}
		*to = v
	}
}
