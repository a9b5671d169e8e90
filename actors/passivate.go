package actors

import (
	"time"

	"github.com/rathcluster/rath/run"
)

// schedule looks for idleness after d. protoactor's own ReceiveTimeout is not
// used: its timer changes the actor's state from another goroutine.
func (a *sessionActor) schedule(d time.Duration) {
	a.used = time.Now()
	if a.timer != nil {
		a.timer.Reset(d)
		return
	}
	self, root := a.self, a.sys.protoactor.Root
	a.timer = time.AfterFunc(d, func() { root.Send(self, &lookIdle{}) })
}

// passivate stops an actor that has had nothing to do, unless a run executes
// on its epoch: passivation would end that.
func (a *sessionActor) passivate() {
	if a.phase == ended {
		return
	}
	quiet := time.Since(a.used)
	switch {
	case a.phase != idle || a.executing():
		a.timer.Reset(a.sys.o.Passivate)
	case quiet < a.sys.o.Passivate:
		a.timer.Reset(a.sys.o.Passivate - quiet)
	default:
		a.save()
	}
}

// executing reports whether the log says that a run executes here.
func (a *sessionActor) executing() bool {
	b := a.w.Book()
	r := b.Run(b.Active)
	return r != nil && r.State == run.Running && a.w.Epoch() != 0 && r.Epoch == a.w.Epoch()
}

// save stores a snapshot, after which the actor stops if nothing came in.
func (a *sessionActor) save() {
	a.async(saving, func(o *outcome) {})
}
