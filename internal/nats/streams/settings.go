package streams

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// setting is one setting of a stream that this release relies on.
type setting struct {
	name  string
	value func(*jetstream.StreamConfig) string
	// take copies the setting; nil for a setting that a server does not change in an
	// existing stream.
	take func(dst, src *jetstream.StreamConfig)
	// lax: a node works with a stream that does not have it at all.
	lax bool
	// replicated is the value that a recreated stream has on several servers. The stream
	// keeps it when there are fewer, and works as well.
	replicated string
}

// settings are compared by Provision, Verify and Plan.
var settings = []setting{
	{"subjects", func(c *jetstream.StreamConfig) string {
		return strings.Join(slices.Sorted(slices.Values(c.Subjects)), " ")
	}, func(dst, src *jetstream.StreamConfig) { dst.Subjects = src.Subjects }, false, ""},
	{"storage", func(c *jetstream.StreamConfig) string { return strings.ToLower(c.Storage.String()) }, nil, false, "memory"},
	{"persist mode", func(c *jetstream.StreamConfig) string { return c.PersistMode.String() }, nil, false, jetstream.DefaultPersistMode.String()},
	{"retention", func(c *jetstream.StreamConfig) string { return c.Retention.String() }, nil, false, ""},
	{"replicas", func(c *jetstream.StreamConfig) string { return strconv.Itoa(c.Replicas) }, func(dst, src *jetstream.StreamConfig) {
		dst.Replicas = src.Replicas
	}, false, ""},
	{"discard", func(c *jetstream.StreamConfig) string { return c.Discard.String() }, func(dst, src *jetstream.StreamConfig) {
		dst.Discard = src.Discard
	}, false, ""},
	{"discard new per subject", func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.DiscardNewPerSubject) }, func(dst, src *jetstream.StreamConfig) {
		dst.DiscardNewPerSubject = src.DiscardNewPerSubject
	}, false, ""},
	{"max bytes", func(c *jetstream.StreamConfig) string {
		// The operator chooses the bound, but there has to be one.
		if c.MaxBytes > 0 {
			return "bounded"
		}
		return "unbounded"
	}, func(dst, src *jetstream.StreamConfig) { dst.MaxBytes = src.MaxBytes }, false, ""},
	{"compression", func(c *jetstream.StreamConfig) string { return strings.ToLower(c.Compression.String()) }, func(dst, src *jetstream.StreamConfig) { dst.Compression = src.Compression }, true, ""},
	{"max messages", func(c *jetstream.StreamConfig) string { return limit(c.MaxMsgs) }, func(dst, src *jetstream.StreamConfig) {
		dst.MaxMsgs = src.MaxMsgs
	}, false, ""},
	{"max messages per subject", func(c *jetstream.StreamConfig) string {
		if c.Name == StreamTasks && c.MaxMsgsPerSubject > 0 {
			// The operator chooses the number of waiting tasks: a server with a lower bound
			// removes the excess.
			return "bounded"
		}
		return limit(c.MaxMsgsPerSubject)
	}, func(dst, src *jetstream.StreamConfig) { dst.MaxMsgsPerSubject = src.MaxMsgsPerSubject }, false, ""},
	{"max message size", func(c *jetstream.StreamConfig) string { return limit(int64(c.MaxMsgSize)) }, func(dst, src *jetstream.StreamConfig) {
		dst.MaxMsgSize = src.MaxMsgSize
	}, true, ""},
	{"max age", func(c *jetstream.StreamConfig) string {
		if c.Name == StreamResult {
			return "" // the operator chooses how long results are kept
		}
		return c.MaxAge.String()
	}, func(dst, src *jetstream.StreamConfig) { dst.MaxAge = src.MaxAge }, false, ""},
	{"duplicate window", func(c *jetstream.StreamConfig) string { return c.Duplicates.String() }, func(dst, src *jetstream.StreamConfig) {
		dst.Duplicates = src.Duplicates
	}, false, ""},
	{"no ack", func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.NoAck) }, func(dst, src *jetstream.StreamConfig) {
		dst.NoAck = src.NoAck
	}, false, ""},
	{"sealed", func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.Sealed) }, nil, false, ""},
	{"deny delete", func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.DenyDelete) }, nil, false, ""},
	{"deny purge", func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.DenyPurge) }, nil, false, ""},
	{"rollup allowed", func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.AllowRollup) }, func(dst, src *jetstream.StreamConfig) {
		dst.AllowRollup = src.AllowRollup
	}, false, ""},
	{"direct get", func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.AllowDirect) }, func(dst, src *jetstream.StreamConfig) {
		dst.AllowDirect = src.AllowDirect
	}, false, ""},
	{"message TTL allowed", func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.AllowMsgTTL) }, nil, false, ""},
	{"batches", func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.AllowAtomicPublish) }, func(dst, src *jetstream.StreamConfig) {
		dst.AllowAtomicPublish = src.AllowAtomicPublish
	}, true, ""},
	{"batches in order", func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.AllowBatchPublish) }, func(dst, src *jetstream.StreamConfig) {
		dst.AllowBatchPublish = src.AllowBatchPublish
	}, true, ""},
	{"republish", func(c *jetstream.StreamConfig) string {
		if c.RePublish == nil {
			return "none"
		}
		return fmt.Sprintf("%s to %s, headers only %v", c.RePublish.Source, c.RePublish.Destination, c.RePublish.HeadersOnly)
	}, func(dst, src *jetstream.StreamConfig) { dst.RePublish = src.RePublish }, false, ""},
	{"mirror, sources or transform", func(c *jetstream.StreamConfig) string {
		return strconv.FormatBool(c.Mirror != nil || len(c.Sources) > 0 || c.SubjectTransform != nil)
	}, nil, false, ""},
	{settingPartitions, func(c *jetstream.StreamConfig) string { return c.Metadata[metaPartitions] }, func(dst, src *jetstream.StreamConfig) {
		meta := map[string]string{}
		maps.Copy(meta, dst.Metadata)
		meta[metaPartitions] = src.Metadata[metaPartitions]
		dst.Metadata = meta
	}, true, ""},
}

const settingPartitions = "partitions of the generation"

const unlimited = "unlimited"

func limit(n int64) string {
	if n <= 0 {
		return unlimited
	}
	return strconv.FormatInt(n, 10)
}

// unset reports whether a stream that was made without a lax setting has it.
func unset(value string) bool {
	return value == "" || value == "false" || value == "none" || value == unlimited
}

// Difference is one setting that differs from the wanted one.
type Difference struct {
	Setting string `json:"setting"`
	Have    string `json:"have"`
	Want    string `json:"want"`
	// Refused is the reason the setting is not changed, and the remedy; empty for a setting
	// that provisioning changes.
	Refused string `json:"refused,omitempty"`

	take func(dst, src *jetstream.StreamConfig)
	lax  bool
}

// differences compares a stream with its wanted configuration.
func differences(want, have *jetstream.StreamConfig) []Difference {
	var out []Difference
	for _, s := range settings {
		w, h := s.value(want), s.value(have)
		if w == h || rebuilt[want.Name] && h == s.replicated {
			continue
		}
		d := Difference{Setting: s.name, Have: h, Want: w, take: s.take, lax: s.lax && unset(h)}
		switch {
		case s.name == "subjects" && !slices.ContainsFunc(have.Subjects, ours):
			d.Refused = "a foreign stream has this name: give Rath a separate account"
		case s.name == settingPartitions && h != "":
			d.Refused = "the number of partitions is fixed for a generation, because the ids of sessions name theirs"
		case s.take == nil && rebuilt[want.Name]:
			d.Refused = "a server cannot change this, but the stream's content is rebuilt: stop all nodes, remove the stream " +
				"(nats stream rm " + want.Name + ") and provision again"
		case s.take == nil:
			d.Refused = "a server cannot change this: if the stream has no valuable data, remove it (nats stream rm " + want.Name + ") and provision again"
		}
		out = append(out, d)
	}
	return out
}

// ours reports whether a subject can be of one of Rath's streams.
func ours(subject string) bool {
	return strings.HasPrefix(subject, "rath.") || strings.HasPrefix(subject, "$KV.")
}

// rebuilt are the streams whose messages follow from others.
var rebuilt = map[string]bool{StreamSnap: true, StreamLineage: true, "KV_" + BucketNode: true}
