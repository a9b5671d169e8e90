package lineage

import (
	"fmt"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// MaxStored is the maximum number of records in one message. A commit with more records
// has several messages.
const MaxStored = 256

// stored is a message of the stream of lineage: records of one commit, in the order of
// its events. The message has their common fields; a record has such a field only if it
// differs.
type stored struct {
	Commit    uint64            `json:"commit"`
	Epoch     uint64            `json:"epoch"`
	Hash      string            `json:"hash"`
	Partition uint32            `json:"partition"`
	Records   []messages.Record `json:"records"`
	Root      session.ID        `json:"root"`
	Schema    int               `json:"schema"`
	Seq       uint64            `json:"seq"`
	Session   session.ID        `json:"session"`
	Tenant    session.Tenant    `json:"tenant"`
}

// EncodeStored returns the canonical JSON of the message that stores records of one
// commit, one to MaxStored of them. It fails on records of several commits.
func EncodeStored(records []messages.Record) ([]byte, error) {
	if len(records) == 0 || len(records) > MaxStored {
		return nil, fmt.Errorf("lineage: %d records in one message: want 1 to %d", len(records), MaxStored)
	}
	of := &records[0]
	o := object{b: append(make([]byte, 0, recordRoom*(len(records)+1)/2), '{')}
	o.count("commit", of.Commit)
	o.count("epoch", of.Epoch)
	o.must("hash", of.Hash)
	o.count("partition", uint64(of.Partition))
	o.key("records")
	for i := range records {
		r := &records[i]
		if r.Key() != of.Key() || r.Commit != of.Commit || r.Hash != of.Hash || r.Partition != of.Partition || r.Root != of.Root ||
			r.Schema != of.Schema || r.Seq != of.Seq {
			return nil, fmt.Errorf("lineage: records of commit %d of %s and of commit %d of %s in one message", of.Commit, of.Key(), r.Commit, r.Key())
		}
		if i == 0 {
			o.b = append(o.b, '[')
		} else {
			o.b = append(o.b, ',')
		}
		o.record(r, of)
	}
	o.b = append(o.b, ']')
	o.must("root", string(of.Root))
	o.signed("schema", int64(of.Schema))
	o.count("seq", of.Seq)
	o.must("session", string(of.Session))
	o.must("tenant", string(of.Tenant))
	if o.err != nil {
		return nil, fmt.Errorf("lineage: commit %d of %s: %w", of.Commit, of.Key(), o.err)
	}
	return append(o.b, '}'), nil
}

// DecodeStored reads a message of the stream of lineage: one to MaxStored records of one
// commit. It fails with the errors of Decode; the reader then skips the whole message.
func DecodeStored(data []byte) ([]messages.Record, error) {
	var m stored
	if err := session.Unmarshal(string(data), &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if m.Schema > Schema {
		return nil, fmt.Errorf("lineage: records have schema %d, this release reads %d: %w", m.Schema, Schema, session.ErrTooOld)
	}
	if len(m.Records) == 0 || len(m.Records) > MaxStored {
		return nil, fmt.Errorf("%w: %d records: want 1 to %d", ErrMalformed, len(m.Records), MaxStored)
	}
	for i := range m.Records {
		r := &m.Records[i]
		r.Commit, r.Hash, r.Partition, r.Root, r.Schema, r.Seq, r.Session, r.Tenant = m.Commit, m.Hash, m.Partition, m.Root, m.Schema, m.Seq, m.Session, m.Tenant
		if r.Epoch == 0 {
			r.Epoch = m.Epoch
		}
		if i > 0 && r.K <= m.Records[i-1].K {
			return nil, fmt.Errorf("%w: event %d after event %d", ErrMalformed, r.K, m.Records[i-1].K)
		}
		if err := validRecord(r); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	return m.Records, nil
}

// StoredSubject returns the subject under which records of one commit are stored. A server
// keeps each subject of a stream in memory, so a tree has one for all its records. Records
// that quarantine a session or restore it from an archive have their own subject, which is
// used to find such sessions.
func StoredSubject(records []messages.Record) string {
	for i := range records {
		if r := &records[i]; r.Kind == messages.KindQuarantined || r.Kind == messages.KindRestored {
			return subjectOf(r, SubjectPrefix)
		}
	}
	return TreeSubject(records[0].Tenant, records[0].Root)
}

// TreeSubject returns the subject of the records of a tree, except records that quarantine
// or restore a session.
func TreeSubject(t session.Tenant, root session.ID) string {
	return SubjectPrefix + string(t) + "." + string(root) + ".tree"
}
