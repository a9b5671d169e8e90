package conn

import (
	"strings"
	"sync"

	"github.com/rathcluster/rath/internal/nats/permission"
)

// refusals ends the requests whose subject the server refuses, and those whose
// connection is lost.
type refusals struct {
	mu      sync.Mutex
	waiting map[*asking]struct{}
	deaf    *PermissionError // answers do not reach this connection
}

// asking is a request in progress.
type asking struct {
	subject string
	cancel  func()
	linked  bool // it ends with its connection
	err     error
}

// enter registers a request, which cancel ends. subject is the subject that it publishes
// to, or the first tokens of that.
func (r *refusals) enter(subject string, cancel func()) *asking {
	a := &asking{subject: subject, cancel: cancel}
	r.note(a)
	return a
}

func (r *refusals) note(a *asking) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[*asking]struct{}{}
	}
	r.waiting[a] = struct{}{}
	if r.deaf != nil {
		a.err = r.deaf
		a.cancel()
	}
}

// leave unregisters a request and returns the reason it was ended, or its own error.
func (r *refusals) leave(a *asking, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, a)
	if err != nil && a.err != nil {
		return a.err
	}
	return err
}

// refuse processes a server's rejection, and reports whether it ends a request.
func (r *refusals) refuse(e *PermissionError, inbox string) (told bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := e.Missing[0].Op == permission.OpSubscribe && strings.HasPrefix(e.Subject, inbox+".")
	if all {
		r.deaf = e
	} else if e.Missing[0].Op == permission.OpSubscribe {
		return false // the subscriber checks by itself
	}
	for a := range r.waiting {
		if all || a.subject == e.Subject || strings.HasPrefix(e.Subject, a.subject+".") {
			a.err, told = e, true
			a.cancel()
		}
	}
	return told
}

// cut ends the requests that were sent over a connection that is lost.
func (r *refusals) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.waiting {
		if a.linked && a.err == nil {
			a.err = ErrCut
			a.cancel()
		}
	}
}

// forget is for a new connection: its rights are learned again.
func (r *refusals) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = nil
}
