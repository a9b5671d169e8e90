package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// alias is an entry of the bucket ALIAS about a run.
type alias struct {
	Session   string          `json:"session"`
	Ended     string          `json:"ended"`
	Cancelled json.RawMessage `json:"cancelled"`
	Refused   string          `json:"refused"`
}

type resultData struct {
	Attempt uint64 `json:"attempt"`
	Chain   *struct {
		Hash    string `json:"hash"`
		Seq     uint64 `json:"seq"`
		Session string `json:"session"`
	} `json:"chain"`
	Code      string `json:"code"`
	EndedMS   int64  `json:"ended_ms"`
	Error     string `json:"error"`
	Finish    string `json:"finish"`
	Word      string `json:"finish_word"`
	Lost      usage  `json:"lost"`
	Output    string `json:"output"`
	Run       string `json:"run"`
	Session   string `json:"session"`
	Settled   uint64 `json:"settled"`
	State     string `json:"state"`
	Usage     usage  `json:"usage"`
	Version   uint64 `json:"version"`
	Workflow  string `json:"workflow"`
	Workspace string `json:"workspace"`
}

// decoded reads JSON that matches a schema, or returns the mistake.
func decoded[T any](s *schema, data []byte) (v T, problem string) {
	if problem = s.check(string(data)); problem == "" && json.Unmarshal(data, &v) != nil {
		problem = "it does not decode"
	}
	return v, problem
}

// resultSkew is the maximum time by which a run may end after its result, because of
// different clocks.
const resultSkew = time.Minute

// result processes a message of RESULT.
func (a *audit) result(m Message) {
	if !a.anyResult && m.Seq > 1 && !m.Time.IsZero() {
		a.resultsFrom = m.Time.Add(resultSkew).UnixMilli()
	}
	a.anyResult = true
	parts := strings.Split(m.Subject, ".")
	if len(parts) != 5 || !a.wanted(parts[2]) {
		return
	}
	a.scan(m, "", 0)
	k := key{parts[2], parts[3]}
	wrong := func(expected, found string) func() Violation {
		return func() Violation {
			return Violation{Tenant: k.tenant, Run: k.id, Stream: m.Stream, Seq: m.Seq, Expected: expected, Found: found}
		}
	}
	r, problem := decoded[resultData](a.o.Schemas.result, m.Data)
	a.check(Results, problem == "", wrong("a result as in result.v1", problem))
	if problem != "" {
		return
	}
	a.check(Results, r.Run == k.id, wrong("run "+k.id+" as in the subject", r.Run))
	a.check(Results, !a.resultsOf[k], wrong("one result of the run", "another one"))
	a.resultsOf[k] = true
	g := a.runs[k]
	if r.Chain != nil {
		g = a.runIn(k, r.Chain.Session)
	}
	if g == nil || g.home == nil {
		if r.Chain != nil {
			if l := a.logs[key{k.tenant, r.Chain.Session}]; l != nil && l.purged() && r.Chain.Seq <= l.tombstone.seq {
				return // its run is archived
			}
		}
		a.untaken[k] = untaken{r.State, r.Chain != nil, m.Seq}
		return
	}
	if g.home.purged() {
		return // not all of it was restored
	}
	if g.end == nil {
		a.check(Results, a.o.Open && r.Chain != nil && r.Chain.Seq > g.home.seq, wrong("run.ended in the home log", "a run that has not ended, and a result "+r.State))
		return
	}
	a.agrees(g, &r, wrong)
}

// untaken is the result of a run without a log: its task was rejected, or cancelled
// earlier.
type untaken struct {
	state string
	chain bool
	seq   uint64
}

// agrees compares a result with the end of its run.
func (a *audit) agrees(g *runState, r *resultData, wrong func(string, string) func() Violation) {
	e := g.end
	a.check(Results, r.Chain != nil && r.Chain.Session == g.home.id && r.Chain.Seq == e.commit && markOf(r.Chain.Hash) == e.hash,
		wrong(fmt.Sprintf("the chain to end with commit %d of %s, hash %x", e.commit, g.home.id, e.hash[:4]), fmt.Sprintf("%+v", r.Chain)))
	a.check(Results, r.State == e.state, wrong("state "+e.state, r.State))
	a.check(Results, r.Attempt == e.attempt, wrong(fmt.Sprintf("attempt %d", e.attempt), fmt.Sprintf("%d", r.Attempt)))
	a.check(Results, r.Code == e.code, wrong(fmt.Sprintf("code %q", e.code), fmt.Sprintf("%q", r.Code)))
	a.check(Results, [2]string{r.Finish, r.Word} == e.finish, wrong(fmt.Sprintf("finish %q", e.finish), fmt.Sprintf("%q", [2]string{r.Finish, r.Word})))
	a.check(Results, digestOf(r.Error) == e.error, wrong("the error of run.ended", clip(r.Error, 60)))
	a.check(Results, digestOf(r.Output) == e.output, wrong("the output of run.ended", clip(r.Output, 60)))
	a.check(Results, r.Usage == e.total.Usage, wrong(fmt.Sprintf("usage %+v", e.total.Usage), fmt.Sprintf("%+v", r.Usage)))
	a.check(Results, r.Lost == e.total.Lost, wrong(fmt.Sprintf("that %+v of it was lost", e.total.Lost), fmt.Sprintf("%+v", r.Lost)))
	a.check(Results, r.EndedMS == e.time, wrong(fmt.Sprintf("ended_ms %d", e.time), fmt.Sprintf("%d", r.EndedMS)))
	a.check(Results, r.Workflow == e.workflow, wrong("workflow "+e.workflow, r.Workflow))
	session, version := g.home.id, uint64(0)
	if e.result != nil {
		session, version = e.result.Session, e.result.Version
	}
	if e.state == "succeeded" && e.told {
		session, version = g.home.id, e.version
	}
	a.check(Results, r.Workspace == e.head, wrong("files "+clip(e.head, 8), clip(r.Workspace, 8)))
	a.check(Results, r.Session == session && r.Version == version, wrong(fmt.Sprintf("%s:%d", session, version), fmt.Sprintf("%s:%d", r.Session, r.Version)))
}

// deadLetter processes a message of DLQ.
func (a *audit) deadLetter(m Message) {
	parts := strings.Split(m.Subject, ".")
	if len(parts) < 4 || !a.wanted(parts[2]) {
		return
	}
	a.scan(m, "", 0)
	if len(parts) == 5 {
		return // the outcome of a rejected task
	}
	var d struct {
		Run string `json:"run"`
	}
	if json.Unmarshal(m.Data, &d) == nil && d.Run != "" {
		a.refused[key{parts[2], d.Run}] = true
	}
}

// task processes a message of TASKS: a submitted run that is not in a log yet.
func (a *audit) task(m Message) {
	parts := strings.Split(m.Subject, ".")
	if len(parts) != 5 || !a.wanted(parts[2]) {
		return
	}
	a.scan(m, "", 0)
	var d struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(m.Data, &d) == nil {
		a.pending[key{parts[2], d.ID}] = true
	}
}

// alias processes an entry of the bucket ALIAS.
func (a *audit) alias(m Message) {
	rest, ok := strings.CutPrefix(m.Subject, "$KV.ALIAS.")
	parts := strings.SplitN(rest, ".", 3)
	if !ok || len(parts) != 3 || !a.wanted(parts[0]) || len(m.Data) == 0 {
		return
	}
	a.scan(m, "", 0)
	v, problem := decoded[alias](a.o.Schemas.alias, m.Data)
	a.check(Aliases, problem == "", func() Violation {
		return Violation{Tenant: parts[0], Stream: m.Stream, Seq: m.Seq, Expected: "an entry as in alias.v1", Found: problem}
	})
	if problem == "" && parts[1] == "run" {
		a.aliases[key{parts[0], parts[2]}] = v
	}
}

// finishResults makes the checks that need all results and aliases.
func (a *audit) finishResults() {
	for k, u := range a.untaken {
		ok := u.state == "failed" || u.state == "cancelled" && len(a.aliases[k].Cancelled) > 0
		a.check(Results, a.o.Open || ok && !u.chain, func() Violation {
			return Violation{
				Tenant: k.tenant, Run: k.id, Stream: streamResult, Seq: u.seq,
				Expected: "a run in the logs, or without a chain the result of a task that was refused or cancelled before", Found: "state " + u.state,
			}
		})
	}
	for _, g := range a.runs {
		if g.home == nil || g.home.purged() {
			continue
		}
		k := g.key
		v, ok := a.aliases[k]
		if t := g.home.tombstone; ok && v.Session != g.home.id && t != nil && t.fresh {
			continue // the id belongs to another run here
		}
		if g.end != nil && a.hasStream[streamResult] && !a.o.Open && g.end.time >= a.resultsFrom {
			a.check(Results, a.resultsOf[k], func() Violation {
				return g.home.says(g.end.commit, k.id, "a result of the run, which has "+g.end.state, "none in RESULT")
			})
		}
		if !ok {
			// The run of a branch needs no alias: it has its session's id. A cleanup run
			// is found by the run that it cleans up.
			a.check(Aliases, !a.hasStream[streamAlias] || g.branch != nil || g.cleans > 0 || a.o.Open, func() Violation {
				return g.home.says(0, k.id, "an alias of the run", "none in ALIAS")
			})
			continue
		}
		a.check(Aliases, v.Session == g.home.id, func() Violation {
			return g.home.says(0, k.id, "the alias to name "+g.home.id, fmt.Sprintf("%q", v.Session))
		})
	}
}

// finishAliases checks that the runs of aliases exist: the node that makes an alias
// appends the task to a log, or records in the alias that it was rejected, before the
// task leaves its queue.
func (a *audit) finishAliases() {
	if a.o.Open || !a.hasStream[streamTasks] {
		return
	}
	for k, v := range a.aliases {
		if v.Session == "" || a.purgedRun(k) {
			continue
		}
		g := a.runIn(k, v.Session)
		a.check(Aliases, v.Ended == "" || g != nil && g.end != nil, func() Violation {
			return Violation{Tenant: k.tenant, Session: v.Session, Run: k.id, Expected: "an end of the run, which its alias reports", Found: "none in its log"}
		})
		a.check(Aliases, a.accounted(k), func() Violation {
			return Violation{Tenant: k.tenant, Session: v.Session, Run: k.id, Expected: "run " + k.id + ", of which there is an alias", Found: "it in no log, queue or refusal"}
		})
	}
}

// accounted reports whether an accepted run is in a log or in the queue, or was rejected
// or cancelled before it was in a log.
func (a *audit) accounted(k key) bool {
	g := a.runIn(k, a.aliases[k].Session)
	_, untaken := a.untaken[k]
	return g != nil && g.home != nil || untaken || a.refused[k] || a.pending[k] || a.aliases[k].Refused != "" || len(a.aliases[k].Cancelled) > 0
}

// scan looks for secrets in a message.
func (a *audit) scan(m Message, session string, commit uint64) {
	for i, secret := range a.secrets {
		found := bytes.Contains(m.Data, secret)
		for name, values := range m.Header {
			found = found || strings.Contains(name+" "+strings.Join(values, " "), string(secret))
		}
		a.check(Secrets, !found, func() Violation {
			v := Violation{Session: session, Commit: commit, Stream: m.Stream, Seq: m.Seq, Expected: "no credential in the message", Found: fmt.Sprintf("number %d of those given, %d bytes", i+1, len(secret))}
			if k, ok := keyOf(m.Stream, m.Subject); ok {
				v.Tenant = k.tenant
			}
			return v
		})
	}
}
