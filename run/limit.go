package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Limit bounds the root runs of a workflow that have the same key. The limit is evaluated
// once, when a task is taken; the run keeps its place from its first start to its end,
// through all attempts and waits, and through its cleanup run.
type Limit struct {
	// Key are the parts of the key: "tag.NAME", or "input.FIELD" with further fields after
	// points, as in input.customer.id. A task without the field has "" there, so that all
	// such tasks share a key. Without Key the limit is for the whole workflow.
	Key []string `json:"key,omitempty"`
	// Concurrency is the maximum number of runs of a key at a time; zero is no maximum.
	Concurrency int `json:"concurrency,omitempty"`
	// Rate is the maximum number of starts of a key within any time of Per; zero is no
	// maximum.
	Rate int           `json:"rate,omitempty"`
	Per  time.Duration `json:"per,omitempty"` // nanoseconds on the wire
	// Reject fails a run that cannot start at once, with CodeBusy, instead of queueing it.
	Reject bool `json:"reject,omitempty"`
}

// Bounds of limits: the parts of a key, and the bytes of each value.
const (
	MaxLimitKey   = 4
	MaxLimitValue = 256
)

// Valid checks the limit. The error wraps ErrMalformed.
func (l *Limit) Valid() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("run: limit: %s: %w", fmt.Sprintf(format, args...), ErrMalformed)
	}
	switch {
	case l.Concurrency < 0 || l.Rate < 0 || l.Concurrency == 0 && l.Rate == 0:
		return bad("concurrency %d and rate %d; give a positive number for one of them", l.Concurrency, l.Rate)
	case (l.Rate > 0) != (l.Per >= time.Second):
		return bad("rate %d per %v; give both, with a time of at least a second", l.Rate, l.Per)
	case l.Rate > 1024:
		return bad("rate %d; give at most 1024 per time, and a shorter time", l.Rate)
	case len(l.Key) > MaxLimitKey:
		return bad("%d parts of a key; give at most %d", len(l.Key), MaxLimitKey)
	}
	for _, part := range l.Key {
		of, name, _ := strings.Cut(part, ".")
		if of == "tag" && ValidTag(name, "x") != nil || of != "tag" && (of != "input" || name == "" || strings.Contains("."+name+".", "..")) {
			return bad("%.60q is no part of a key; give tag.NAME or input.FIELD", part)
		}
	}
	return nil
}

// KeyOf returns the values of the key's parts for a task. The error wraps ErrMalformed.
func (l *Limit) KeyOf(input json.RawMessage, tags Tags) ([]string, error) {
	key := make([]string, len(l.Key))
	for i, part := range l.Key {
		of, name, _ := strings.Cut(part, ".")
		if of == "tag" {
			key[i] = tags[name]
			continue
		}
		value := input
		for field := range strings.SplitSeq(name, ".") {
			var fields map[string]json.RawMessage
			if json.Unmarshal(value, &fields) != nil {
				value = nil
				break
			}
			value = fields[field]
		}
		text, err := keyText(value)
		if err != nil {
			return nil, fmt.Errorf("run: %s is a part of the workflow's limit: %w", part, err)
		}
		key[i] = text
	}
	return key, nil
}

// keyText returns a value of JSON as a part of a key.
func keyText(value json.RawMessage) (string, error) {
	text := strings.TrimSpace(string(value))
	if text == "null" {
		text = ""
	}
	if strings.HasPrefix(text, `"`) {
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			return "", fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		text = s
	} else if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		return "", fmt.Errorf("it is an object or a list: %w; send a text, a number or a truth value", ErrMalformed)
	}
	if len(text) > MaxLimitValue {
		return "", fmt.Errorf("it has %d bytes: %w; send at most %d", len(text), ErrMalformed, MaxLimitValue)
	}
	return text, nil
}

// MaxPriority bounds the priority of a task: from -MaxPriority to MaxPriority, zero by
// default. Of the runs of a tenant that wait for a slot, or for a limit by key, the one
// with the highest priority is the first.
const MaxPriority = 100

// ValidPriority checks the priority of a task. The error wraps ErrMalformed.
func ValidPriority(n int64) error {
	if n < -MaxPriority || n > MaxPriority {
		return fmt.Errorf("run: priority %d: %w; give a number from -%d to %d", n, ErrMalformed, MaxPriority, MaxPriority)
	}
	return nil
}

// ClassBatch is the class of a task whose run gets only leftover capacity.
const ClassBatch = "batch"

// ValidClass checks the class of a task. The error wraps ErrMalformed.
func ValidClass(class string) error {
	if class != "" && class != ClassBatch {
		return fmt.Errorf("run: %.40q is no class of a task: %w; give %q, or leave it out", class, ErrMalformed, ClassBatch)
	}
	return nil
}
