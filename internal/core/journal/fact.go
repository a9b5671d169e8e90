package journal

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Fact is one event of a log, decoded, under the names that all readers share. A field
// is zero if the event does not have it.
type Fact struct {
	*session.Event
	// What is the decoded value of the event: a [session.Chunk], [session.Opening] and
	// so on, or a [Claimed], [StepCompleted] and so on of this package. It is nil if
	// Err is set, and for an event of an unknown namespace.
	What any
	// Err is the reason why the event cannot be read. It wraps [session.ErrTooOld] for
	// an event of a later release.
	Err error

	Run      run.ID // that the event names
	Step     run.Path
	Attempt  uint64
	State    run.State // the run's state after the event
	Workflow string
	Revision string
	By       string // the user or the run that decided
	Says     string // the user's own claim of identity, see Named
	Reason   string // of a decision or an end; of an outcome that is an error, its text
	Code     run.Code
	Usage    session.Usage
}

// Facts decodes the events of a commit, in their order. The facts point into the
// commit, so offloaded data must be loaded before.
func Facts(c commitlog.Commit) []Fact {
	facts := make([]Fact, len(c.Events))
	for i := range c.Events {
		f := &facts[i]
		f.Event = &c.Events[i]
		if f.Data == "" && !f.Blob.Digest.IsZero() {
			f.Err = fmt.Errorf("journal: data of %s lies in blob %s and was not loaded", f.Kind, f.Blob.Digest.Short())
			continue
		}
		if f.What, f.Err = payload(*f.Event); f.Err == nil {
			f.name()
		}
	}
	return facts
}

// Recorder is the run that recorded the event: the run that the event names, or else
// the run whose step it belongs to.
func (f *Fact) Recorder() run.ID {
	if f.Run != "" {
		return f.Run
	}
	id, _, _ := strings.Cut(f.Batch, "/")
	return run.ID(id)
}

// Links are the commits of sessions that the event refers to. A link whose Seq is zero
// names a session that the event makes. An outcome that came too late is only evidence
// and refers to no commit.
func (f *Fact) Links() []session.Link {
	switch v := f.What.(type) {
	case session.Opening:
		return v.Parents
	case session.Join:
		links := make([]session.Link, len(v.Parents))
		for i, p := range v.Parents {
			links[i] = p.Link
		}
		return links
	case commitlog.Rejection:
		return []session.Link{v.Branch}
	case FanOut:
		return []session.Link{v.Base}
	case SignalReceived:
		if v.Branch != nil {
			return []session.Link{v.Branch.Link}
		}
	case StepCompleted:
		return v.Links
	case Ended:
		if v.Result != nil {
			return []session.Link{*v.Result}
		}
	}
	return nil
}

// Outcomes are the outcomes of branches, according to the session that opened or joined
// them. A run that ends cancels its open branches without a reason.
func (f *Fact) Outcomes() []run.BranchOutcome {
	switch v := f.What.(type) {
	case commitlog.Rejection:
		return []run.BranchOutcome{{Reason: v.Reason, Session: v.Branch.ID, State: v.State}}
	case session.Join:
		state := v.Closes()
		if state == "" {
			return nil
		}
		ends := make([]run.BranchOutcome, len(v.Parents))
		for i, p := range v.Parents {
			ends[i] = run.BranchOutcome{Reason: v.Reason, Session: p.Link.ID, State: state}
		}
		return ends
	case BranchOutcomes:
		return v.Branches
	case Ended:
		ends := make([]run.BranchOutcome, len(v.Branches))
		for i, id := range v.Branches {
			ends[i] = run.BranchOutcome{Session: id, State: session.ClosedCancelled}
		}
		return ends
	}
	return nil
}

// name copies the event's fields to the names that all readers share.
func (f *Fact) name() {
	switch v := f.What.(type) {
	case session.Opening:
		f.Run, f.Step = run.ID(v.Run), run.Path(v.Step)
	case session.Chunk:
		o := v.Origin()
		f.Run, f.Step, f.Workflow, f.Usage = run.ID(o.Run), run.Path(o.Step), o.Workflow, o.Usage
	case session.Join:
		f.Reason, f.Usage = v.Reason, v.Usage
	case commitlog.Rejection:
		f.Reason = v.Reason
	case session.Closing:
		f.By, f.Reason = string(v.By.ID), v.Reason
	case commitlog.Archival:
		f.By = v.By
	case commitlog.Restoration:
		f.By, f.Reason = v.By, v.Reason
	case Submitted:
		f.Run, f.State, f.Workflow, f.Revision, f.By, f.Says = v.Task.Run, run.Queued, v.Task.Workflow, v.Task.Revision, v.By, v.Says
	case LimitSet:
		f.By, f.Says = v.By, v.Says
	case Granted:
		f.Run, f.Workflow, f.Revision = v.Run, v.Workflow, v.Revision
	case Awaited:
		f.Run = v.Run
	case Claimed:
		f.Run, f.Attempt, f.State, f.Workflow, f.Revision = v.Run, v.Attempt, run.Running, v.Workflow, v.Revision
	case Released:
		f.Run, f.Attempt, f.Step, f.Workflow, f.Revision, f.Reason = v.Run, v.Attempt, v.Step, v.Workflow, v.Revision, v.Reason
		if v.Workflow != "" { // else a session that is not the run's home is released
			f.State = run.Queued
		}
	case Review:
		f.Run, f.Attempt, f.Step, f.State = v.Run, v.Attempt, v.Path, run.NeedsReview
		f.Revision, f.Reason, f.Code = v.Revision, v.Reason, v.Code
	case Resolved: // a run that the operator abandons ends by a separate event
		f.Run, f.Step, f.State, f.Workflow, f.Revision, f.By, f.Says, f.Reason = v.Run, v.Path, run.Queued, v.Workflow, v.Revision, v.By, v.Says, v.Reason
	case CancelRequested:
		f.Run, f.By, f.Says, f.Reason = v.Run, v.By, v.Says, v.Reason
	case Warning:
		f.Run, f.Reason = v.Run, v.Text
	case Status:
		f.Run = v.Run
	case RunWaiting:
		f.Run, f.Attempt, f.State = v.Run, v.Attempt, run.Waiting
	case SignalReceived:
		f.Run, f.Step, f.Workflow, f.Revision, f.By, f.Says, f.Reason = v.Run, v.Path, v.Workflow, v.Revision, v.By, v.Says, v.Reason
		if v.Wake > 0 {
			f.State = run.Queued
		}
	case FanOut:
		f.Run, f.Step, f.Workflow, f.Revision = v.Run, v.Path, v.Workflow, v.Revision
	case Start:
		f.Run, f.Step, f.By = v.Run, v.Path, v.By
	case BranchesReleased:
		f.Run, f.Step, f.Workflow, f.Revision = v.Run, v.Path, v.Workflow, v.Revision
	case CacheWarmed:
		f.Run = v.Run
	case BranchOutcomes:
		f.Run = v.Run
	case Quarantined:
		f.By, f.Says, f.Reason = v.By, v.Says, v.Reason
	case Rebudgeted:
		f.Run, f.By, f.Says, f.Reason = v.Run, v.By, v.Says, v.Reason
	case Ended:
		f.Run, f.Attempt, f.Workflow, f.Reason = v.Run, v.Attempt, v.Workflow, v.Error
		if v.Workflow != "" { // else a session that is not the run's home is released
			f.State, f.Code, f.Usage = v.State, v.Code, v.Usage
		}
	case Settled:
		f.Run, f.Usage = v.Run, v.Total.Usage
	case StepStarted:
		f.Run, f.Step, f.Attempt = v.Run, v.Path, v.Attempt
	case StepCompleted:
		f.completed(v)
	case Late:
		f.completed(StepCompleted(v))
	}
}

func (f *Fact) completed(v StepCompleted) {
	f.Run, f.Step, f.Attempt, f.Revision, f.Reason, f.Code, f.Usage = v.Run, v.Path, v.Attempt, v.Revision, v.Error, v.Code, v.Usage
}

// payloads read the data of events, by kind.
var payloads = map[string]func(session.Event) (any, error){
	session.KindOpened:   asFact(session.DecodeOpening),
	session.KindChunk:    asFact(session.DecodeChunk),
	session.KindPlaced:   asFact(session.DecodePlacement),
	session.KindJoined:   asFact(session.DecodeJoin),
	session.KindRejected: asFact(commitlog.DecodeRejection),
	session.KindClosed:   asFact(session.DecodeClosing),
	session.KindArchived: asFact(commitlog.DecodeArchival),
	session.KindRestored: asFact(commitlog.DecodeRestoration),

	KindWriter:           asFact(Decode[WriterOpened]),
	KindLimitRequested:   asFact(Decode[LimitRequested]),
	KindLimitDecided:     asFact(Decode[LimitDecided]),
	KindLimitReleased:    asFact(Decode[LimitReleased]),
	KindKeyClosed:        asFact(Decode[KeyClosed]),
	KindEventPublished:   asFact(Decode[EventPublished]),
	KindEventAwaited:     asFact(Decode[EventAwaited]),
	KindEventDelivered:   asFact(Decode[EventDelivered]),
	KindEventReleased:    asFact(Decode[EventReleased]),
	KindLimitSet:         asFact(Decode[LimitSet]),
	KindLimitBlocked:     asFact(Decode[LimitBlocked]),
	KindSubmitted:        asFact(Decode[Submitted]),
	KindGranted:          asFact(Decode[Granted]),
	KindAwaited:          asFact(Decode[Awaited]),
	KindClaimed:          asFact(Decode[Claimed]),
	KindReleased:         asFact(Decode[Released]),
	KindReview:           asFact(Decode[Review]),
	KindResolved:         asFact(Decode[Resolved]),
	KindCancel:           asFact(Decode[CancelRequested]),
	KindWarning:          asFact(Decode[Warning]),
	KindStatus:           asFact(Decode[Status]),
	KindEnded:            asFact(Decode[Ended]),
	KindSettled:          asFact(Decode[Settled]),
	KindRunWaiting:       asFact(Decode[RunWaiting]),
	KindSignalReceived:   asFact(Decode[SignalReceived]),
	KindFanOut:           asFact(Decode[FanOut]),
	KindStart:            asFact(Decode[Start]),
	KindBranchesReleased: asFact(Decode[BranchesReleased]),
	KindCacheWarmed:      asFact(Decode[CacheWarmed]),
	KindBranchOutcomes:   asFact(Decode[BranchOutcomes]),
	KindQuarantined:      asFact(Decode[Quarantined]),
	KindRebudgeted:       asFact(Decode[Rebudgeted]),
	KindStepStarted:      asFact(Decode[StepStarted]),
	KindStepCompleted:    asFact(Decode[StepCompleted]),
	KindLate:             asFact(Decode[Late]),
}

func asFact[T any](read func(session.Event) (T, error)) func(session.Event) (any, error) {
	return func(e session.Event) (any, error) {
		if made := e.Made(); made != nil {
			if _, ok := made.(T); ok {
				return made, nil
			}
		}
		v, err := read(e)
		if err != nil {
			return nil, err
		}
		return v, nil
	}
}

// payload decodes an event; it returns nil for an event of a namespace that no fold
// handles. An unknown event of another namespace is session.ErrTooOld.
func payload(e session.Event) (any, error) {
	if read := payloads[e.Kind]; read != nil {
		return read(e)
	}
	for _, space := range []string{"session.", "run.", "step.", "writer.", "limit.", "event.", "key."} {
		if strings.HasPrefix(e.Kind, space) {
			return nil, fmt.Errorf("journal: unknown event %s: %w", e.Kind, session.ErrTooOld)
		}
	}
	return nil, nil
}
