package lineage

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Schema is the schema number of the records that this release reads and writes.
const Schema = 1

// Limits of a record's texts, in characters.
const (
	MaxSummary = 100
	MaxReason  = 300
)

// MaxCandidates is the maximum number of candidates of a selection in a record.
const MaxCandidates = 64

var (
	// ErrMalformed marks bytes that are not a record.
	ErrMalformed = errors.New("lineage: not a record")
	// ErrNotFound is returned for a session, run or version that is not in the
	// graph.
	ErrNotFound = errors.New("lineage: not found")
)

func refOf(l session.Link) messages.Ref {
	r := messages.Ref{Commit: l.Seq, Session: l.ID, Version: l.Version}
	if l.Hash != (session.Hash{}) {
		r.Hash = l.Hash.String()
	}
	return r
}

// Opens reports whether the record opens its session.
func Opens(r *messages.Record) bool { return r.Commit == 1 && opens(r.Kind) }

// SubjectPrefix begins the subjects on which records are stored.
const SubjectPrefix = "rath.lineage."

// TailSubject returns the subject on which the record is published.
func TailSubject(r *messages.Record) string { return subjectOf(r, messages.TailPrefix) }

func subjectOf(r *messages.Record, prefix string) string {
	return prefix + string(r.Tenant) + "." + string(r.Root) + "." + string(r.Kind) + "." + string(r.Session)
}

// Decode reads a record. It skips unknown fields, because a schema may gain fields. It
// fails with session.ErrTooOld for a higher schema, and with ErrMalformed for other data
// that are not a record.
func Decode(data []byte) (messages.Record, error) {
	var r messages.Record
	if err := session.Unmarshal(string(data), &r); err != nil {
		return messages.Record{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if r.Schema > Schema {
		return messages.Record{}, fmt.Errorf("lineage: record has schema %d, this release reads %d: %w", r.Schema, Schema, session.ErrTooOld)
	}
	if err := validRecord(&r); err != nil {
		return messages.Record{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r, nil
}

// whoOf returns the user who requested the recorded action.
func whoOf(r *messages.Record) string { return journal.Named(r.By, r.Says) }

func validRecord(r *messages.Record) error {
	if err := r.Key().Valid(); err != nil {
		return err
	}
	if err := session.ValidID("root session", string(r.Root)); err != nil {
		return err
	}
	switch {
	case r.Schema != Schema:
		return fmt.Errorf("schema %d: want %d", r.Schema, Schema)
	case r.Kind.Doc() == "":
		return fmt.Errorf("unknown kind %q", r.Kind)
	case r.Commit == 0 || r.K < 0 || r.Rows < 0:
		return fmt.Errorf("commit %d, k %d, rows %d: commits count from one", r.Commit, r.K, r.Rows)
	}
	var named []session.ID
	for _, ref := range slices.Concat(r.Parents, r.Branches) {
		named = append(named, ref.Session)
	}
	for _, e := range r.Ends {
		named = append(named, e.Session)
	}
	for _, id := range named {
		if err := session.ValidID("session", string(id)); err != nil {
			return err
		}
	}
	return nil
}

// cloneRecord returns an independent copy of r.
func cloneRecord(r *messages.Record) *messages.Record {
	c := *r
	c.Parents, c.Branches, c.Ends = slices.Clone(r.Parents), slices.Clone(r.Branches), slices.Clone(r.Ends)
	c.Waits, c.Candidates = slices.Clone(r.Waits), slices.Clone(r.Candidates)
	for i, w := range c.Waits {
		c.Waits[i].Branches = slices.Clone(w.Branches)
	}
	c.Tags = maps.Clone(r.Tags)
	if r.Result != nil {
		c.Result = new(*r.Result)
	}
	if r.BranchOf != nil {
		c.BranchOf = new(*r.BranchOf)
	}
	return &c
}
