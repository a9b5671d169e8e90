package messages_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestText checks the text of errors for users, and that the code is kept.
func TestText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
		code run.Code
	}{
		{nil, "", ""},
		{fmt.Errorf("node %q: %w", "zzz", session.ErrNotFound), `node "zzz": not found`, run.CodeNotFound},
		{fmt.Errorf("dead letter 99: %w; list them to see which there are", session.ErrNotFound), "dead letter 99: not found; list them to see which there are", run.CodeNotFound},
		{fmt.Errorf("the run has ended (succeeded): %w; see", run.ErrState), "the run has ended (succeeded); see", run.CodeState},
		{fmt.Errorf("approve run q1: run: step 99 of q1 has no open question: %w", run.ErrState), "approve run q1: step 99 of q1 has no open question", run.CodeState},
		{fmt.Errorf("run q1: %w: its task was rejected", run.ErrState), "run q1: its task was rejected", run.CodeState},
		{fmt.Errorf("%w: %w", run.ErrMalformed, session.ValidID("run", "a b")), `run id "a b": only A-Z a-z 0-9 _ - are allowed`, run.CodeMalformed},
		{run.ErrMalformed, "malformed", run.CodeMalformed},
		{run.ErrState, "not possible in this state", run.CodeState},
		{fmt.Errorf("%w: 8 queries are being answered", run.ErrBusy), "busy: 8 queries are being answered", run.CodeBusy},
		{errors.New("lineage: run: x"), "x", run.CodeError},
		{errors.New("run q1 failed: llm: no_key: no key for m; set one"), "run q1 failed: no key for m; set one", run.CodeError},
		{errors.New("natsserver: port in use: 4222; choose another"), "port in use: 4222; choose another", run.CodeError},
		{errors.New("node: no node runs here"), "no node runs here", run.CodeError},
		{errors.New("nats/conn: no NATS server reachable: x"), "no NATS server reachable: x", run.CodeError},
		{errors.New(`--older-than: lineage: "foo" is no age`), `--older-than: "foo" is no age`, run.CodeError},
		{errors.New("fix: the run: it fails"), "fix: the run: it fails", run.CodeError},
		{context.DeadlineExceeded, "context deadline exceeded", run.CodeTimeout},
	} {
		if got := messages.Text(c.err); got != c.want {
			t.Errorf("Text(%v) = %q, want %q", c.err, got, c.want)
		}
		e := wire.ErrorOf(c.err)
		if e == nil {
			e = &wire.Error{}
		}
		if e.Code != c.code || e.Text != c.want {
			t.Errorf("ErrorOf(%v) = %+v, want %q and %q", c.err, e, c.code, c.want)
		}
	}
}
