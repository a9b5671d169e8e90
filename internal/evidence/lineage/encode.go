package lineage

import (
	"fmt"
	"strconv"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// The records of a commit are encoded twice: into the message that stores them, and one
// by one for subscribers. Therefore this file encodes a record field by field, in the
// order of the keys. The result is equal to that of canonical.Marshal, in a fraction of
// the time.

// object writes a JSON object. The caller names the fields in the order of their keys.
type object struct {
	b   []byte
	err error // of the first value that does not encode
}

func (o *object) key(k string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), k...), '"', ':')
}

// text writes a text unless it is empty.
func (o *object) text(k, v string) {
	if v != "" {
		o.must(k, v)
	}
}

// must writes a text, even if empty.
func (o *object) must(k, v string) {
	o.key(k)
	o.b = canonical.AppendString(o.b, v)
}

// number writes a number unless it is zero.
func (o *object) number(k string, v int64) {
	if v != 0 {
		o.signed(k, v)
	}
}

// signed writes a number, even if zero.
func (o *object) signed(k string, v int64) {
	o.key(k)
	o.b = strconv.AppendInt(o.b, v, 10)
}

// positive writes a number unless it is zero.
func (o *object) positive(k string, v uint64) {
	if v != 0 {
		o.count(k, v)
	}
}

// count writes a number, even if zero.
func (o *object) count(k string, v uint64) {
	o.key(k)
	o.b = strconv.AppendUint(o.b, v, 10)
}

func (o *object) yes(k string, v bool) {
	if v {
		o.key(k)
		o.b = append(o.b, "true"...)
	}
}

// value writes a value that is in few records, if there.
func (o *object) value(k string, there bool, v any) {
	if !there {
		return
	}
	text, err := canonical.Marshal(v)
	if err != nil && o.err == nil {
		o.err = err
	}
	o.key(k)
	o.b = append(o.b, text...)
}

func (o *object) usage(k string, u session.Usage) {
	if u == (session.Usage{}) {
		return
	}
	o.key(k)
	o.b = append(o.b, '{')
	o.number("cache_read", u.CacheRead)
	o.number("cache_write", u.CacheWrite)
	o.number("calls", u.Calls)
	o.number("input", u.Input)
	o.number("micro_usd", u.MicroUSD)
	o.number("output", u.Output)
	o.b = append(o.b, '}')
}

// record writes a record. If of is set, it is the first record of r's message, and the
// fields that the message has are omitted.
func (o *object) record(r, of *messages.Record) {
	alone := of == nil
	o.b = append(o.b, '{')
	o.text("again", r.Again)
	o.text("agent", r.Agent)
	o.positive("attempt", r.Attempt)
	o.text("behind", string(r.Behind))
	o.value("branch_of", r.BranchOf != nil, r.BranchOf)
	o.value("branches", len(r.Branches) > 0, r.Branches)
	o.text("by", r.By)
	o.text("call", r.Call)
	o.number("calls", int64(r.Calls))
	o.value("candidates", len(r.Candidates) > 0, r.Candidates)
	o.text("code", string(r.Code))
	if alone {
		o.count("commit", r.Commit)
	}
	o.text("cost", r.Cost)
	o.number("due", r.Due)
	o.text("durability", r.Durability)
	o.text("effect", r.Effect)
	o.number("elapsed", r.Elapsed)
	o.value("ends", len(r.Ends) > 0, r.Ends)
	switch {
	case alone:
		o.count("epoch", r.Epoch)
	case r.Epoch != of.Epoch:
		o.positive("epoch", r.Epoch)
	}
	o.yes("failed", r.Failure)
	o.text("finish", r.Finish)
	o.text("finish_word", r.Word)
	if alone {
		o.must("hash", r.Hash)
	}
	o.text("head_after", r.Head)
	o.text("head_before", r.HeadFrom)
	o.text("home", string(r.Home))
	o.signed("k", int64(r.K))
	o.must("kind", string(r.Kind))
	o.text("model", r.Model)
	o.text("name", r.Name)
	o.text("node", r.Node)
	o.value("parents", len(r.Parents) > 0, r.Parents)
	if alone {
		o.count("partition", uint64(r.Partition))
	}
	o.text("policy", r.Policy)
	o.text("reason", r.Reason)
	o.value("result", r.Result != nil, r.Result)
	o.recordEnd(r, alone)
	o.b = append(o.b, '}')
}

// recordEnd writes the fields of a record behind its result.
func (o *object) recordEnd(r *messages.Record, alone bool) {
	o.value("resumes", r.Resumes != nil, r.Resumes)
	o.text("revision", r.Revision)
	o.text("role", r.Role)
	if alone {
		o.must("root", string(r.Root))
	}
	o.number("rows", int64(r.Rows))
	o.text("run", string(r.Run))
	o.text("says", r.Says)
	if alone {
		o.signed("schema", int64(r.Schema))
		o.positive("seq", r.Seq)
		o.must("session", string(r.Session))
	}
	o.text("source", r.Source)
	o.value("started_by", r.StartedBy != nil, r.StartedBy)
	o.text("starts", string(r.Starts))
	o.text("state", r.State)
	o.text("status", r.Status)
	o.text("step", string(r.Step))
	o.must("summary", r.Summary)
	o.value("tags", len(r.Tags) > 0, r.Tags)
	if alone {
		o.must("tenant", string(r.Tenant))
	}
	o.signed("time", r.Time)
	o.text("tool", r.Tool)
	o.usage("unrecorded", r.Unrecorded)
	o.usage("usage", r.Usage)
	o.positive("version", uint64(r.Version))
	o.text("via", r.Via)
	o.value("waits", len(r.Waits) > 0, r.Waits)
	o.positive("wake", r.Wake)
	o.text("workflow", r.Workflow)
}

// AppendRecord appends the record's canonical JSON: keys sorted, no white space, no floats.
// It fails, and returns b, if a value of the record has no canonical JSON.
func AppendRecord(r *messages.Record, b []byte) ([]byte, error) {
	o := object{b: b}
	if o.record(r, nil); o.err != nil {
		return b, fmt.Errorf("lineage: record %d.%d of %s: %w", r.Commit, r.K, r.Key(), o.err)
	}
	return o.b, nil
}

// recordRoom is the approximate size of most records in bytes.
const recordRoom = 640

// EncodeRecord returns the output of AppendRecord.
func EncodeRecord(r *messages.Record) ([]byte, error) {
	return AppendRecord(r, make([]byte, 0, recordRoom))
}
