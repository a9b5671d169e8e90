package engine

import (
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// level is a run whose code an execution runs: the runs around a branch, whose journals
// are replayed and never written, and the run itself, which is the last one.
type level struct {
	run  run.ID
	home session.Key
	path run.Path // below which its own steps are
	// from is the step from which on the steps of a run that resumes another one are its
	// own; until is the step at which a run ended that is resumed. They are "" for others.
	from, until run.Path
	standing    []journal.GatheredBranch // the outcomes of the fan-out at from that stand
	base        session.Session
}

// levels are the runs around an execution's run, and that run. They do not change once
// Forward begins, except for result and warming, which the execution's mu guards.
type levels struct {
	all        []level           // outermost first
	root       *journal.Task     // of the outermost one; nil when it is the run itself
	stopReason string            // why the run around this one no longer needs it
	result     *branchResult     // the result of a branch
	warming    bool              // other branches wait for its first answer of a model
	resumed    []journal.Resumed // the records that the claim has read
}

// own returns the run itself.
func (l *levels) own() level { return l.all[len(l.all)-1] }

// owner returns the run that a path belongs to. An ending path belongs to the run itself,
// never to a run around it.
func (l *levels) owner(p run.Path) level {
	if p.Ends() {
		return l.own()
	}
	for _, one := range slices.Backward(l.all) {
		if one.has(p) {
			return one
		}
	}
	return l.all[0]
}

// has reports whether a path can be one of the run, or of a run within it.
func (one *level) has(p run.Path) bool {
	if one.from != "" { // the branches that stand started from what the run before committed
		return run.ComparePaths(p, one.from) >= 0 && (len(one.standing) == 0 || !p.Within(journal.CommitPath(one.from)))
	}
	return one.path == "" || p.Within(one.path)
}

// startsCommitted reports whether a path is a fan-out with outcomes that stand: the run
// before has committed the edits that its branches start from.
func (l *levels) startsCommitted(p run.Path) bool {
	of := l.owner(p)
	return p == of.from && len(of.standing) > 0
}

// branch reports whether the run is a branch of the code of another one.
func (l *levels) branch() bool { return l.own().path != "" }

// outer reports whether a path belongs to a run around this one.
func (l *levels) outer(p run.Path) bool {
	return len(l.all) > 1 && l.owner(p).run != l.own().run
}

// below returns the place in all of the run that a fan-out at a path leads to.
func (l *levels) below(fan run.Path) int {
	of := l.owner(fan).run
	return slices.IndexFunc(l.all, func(one level) bool { return one.run == of }) + 1
}

// leads reports whether the fan-out at a path is on the way to this branch.
func (l *levels) leads(fan run.Path) bool {
	if !l.outer(fan) {
		return false
	}
	next := string(l.all[l.below(fan)].path)
	cut := strings.LastIndexByte(next, '.')
	return cut > 0 && next[:cut] == string(fan)
}

// ancestors returns the runs around the branches that the run opens.
func (l *levels) ancestors() []journal.Ancestor {
	var all []journal.Ancestor
	for _, one := range l.all {
		if one.until != "" { // its records come with the run that resumes it
			continue
		}
		all = append(all, journal.Ancestor{Path: one.path, Run: one.run, Session: one.home.ID})
	}
	return all
}

// branchResult is the result of a branch's own part of the workflow.
type branchResult struct {
	s   session.Session
	err error
}
