//go:build unix

package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestQuotaKilled kills one of two nodes, with kill -9, while runs call a model under a quota
// of tokens. The other one continues: once the operator opens the day, each call is recorded
// once, and only the call of each run at the killed node may have been sent twice, in two
// attempts.
func TestQuotaKilled(t *testing.T) {
	const runs, each, quota = 8, 100, 2000
	w := newVictim(t, "quotas")
	c := w.client(t, "asks")
	o := metered()
	o.Fleet.Gossip = w.gossip(w.at())
	member(t, w.srv, o)
	quotaTo(t, c, messages.VerbQuotaSet, messages.QuotaAmounts{Tokens: quota})
	id := func(n int) run.ID { return run.ID(fmt.Sprint("asks-", n)) }
	for n := range runs {
		must.Get(c.Submit(t.Context(), "asks", messages.Task{ID: id(n)}))(t)
	}
	for strings.Count(w.noted(t), "\n") < quota/each/2 {
		time.Sleep(time.Millisecond)
	}
	w.kill(t)
	for n := range runs {
		inState(t, c, id(n), run.Waiting)
	}
	q := must.Get(c.Fleet.Quota(t.Context()))(t)
	if n := int64(strings.Count(w.noted(t), "\n")); q.Used.Tokens < quota || q.Used.Tokens > n*each || n*each > quota+2*runs*each { // a call of each run is over, and one is repeated
		t.Errorf("%d calls of %d tokens each, %d counted, and %d are allowed", n, each, q.Used.Tokens, quota)
	}
	must.Do(t, c.Fleet.ChangeQuota(t.Context(), messages.VerbQuotaOpen, messages.Control{}))
	for n := range runs {
		if r := must.Get(c.Wait(t.Context(), id(n)))(t); r.State != run.Succeeded {
			t.Errorf("%+v", r)
		}
	}
	var requests bytes.Buffer
	steps, sent := map[string]bool{}, map[string]bool{}
	for key := range strings.FieldsSeq(w.noted(t)) {
		if sent[key] {
			t.Errorf("call %s was sent twice", key)
		}
		of, rest, _ := strings.Cut(key, "/")
		step, number, _ := strings.Cut(rest, "/")
		sent[key], steps[of+"/"+step] = true, true
		must.Do(t, json.NewEncoder(&requests).Encode(audit.Request{Run: of, Step: step, Attempt: must.Get(strconv.ParseUint(number, 10, 64))(t)}))
	}
	if len(steps) != runs*quotaCalls || len(sent) > len(steps)+runs {
		t.Errorf("%d calls were sent %d times, want %d", len(steps), len(sent), runs*quotaCalls)
	}
	user, password := w.srv.Operator()
	op := must.Get(api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: w.srv.Dial, User: user, Password: password}, Client: true}))(t)
	t.Cleanup(func() { must.Report(t, op.Conn.Close()) })
	must.Do(t, op.Projections.WaitCaughtUp(t.Context()))
	schemas := must.Get(audit.ReadSchemas(os.DirFS("../messages/schema")))(t)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) { // results are stored beside
		r := must.Get(audit.Run(t.Context(), dumped(t, op), &audit.Options{Schemas: schemas, Models: []io.Reader{bytes.NewReader(requests.Bytes())}}))(t)
		if r.OK() && r.Runs == runs {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the audit of %d runs found %v", r.Runs, r.Violations)
		}
	}
}

// dumped yields all stored messages.
func dumped(t *testing.T, op *api.Conn) iter.Seq2[audit.Message, error] {
	return func(yield func(audit.Message, error) bool) {
		more := true
		err := op.Logs.Dump(t.Context(), func(m eventlog.Stored) error {
			more = more && yield(audit.Message(m), nil)
			return nil
		})
		if more && err != nil {
			yield(audit.Message{}, err)
		}
	}
}
