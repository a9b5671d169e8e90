package journaltest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// payloads makes the data of an event from the fields that a command names.
var payloads = map[string]func() any{
	journal.KindReleased:       func() any { return &journal.Released{} },
	journal.KindReview:         func() any { return &journal.Review{Code: run.CodeReview} },
	journal.KindWarning:        func() any { return &journal.Warning{} },
	journal.KindEnded:          func() any { return &journal.Ended{Workflow: "work"} },
	journal.KindRunWaiting:     func() any { return &journal.RunWaiting{} },
	journal.KindFanOut:         func() any { return &journal.FanOut{} },
	journal.KindCacheWarmed:    func() any { return &journal.CacheWarmed{} },
	journal.KindBranchOutcomes: func() any { return &journal.BranchOutcomes{} },
	journal.KindStepStarted:    func() any { return &journal.StepStarted{Call: "c", Input: "in"} },
	journal.KindStepCompleted:  func() any { return &journal.StepCompleted{Input: "in"} },
	journal.KindWriter:         func() any { return &journal.WriterOpened{} },

	session.KindOpened: func() any { return &session.Opening{} },
	session.KindPlaced: func() any { return &session.Placement{} },
	session.KindClosed: func() any { return &session.Closing{} },
}

// events reads the events of a batch: "kind field=value …", with ";" between two.
// Fields that name the run, its attempt and the step are set from b.
func (s *stage) events(b journal.Batch, words []string) (all []session.Event) {
	s.Helper()
	for len(words) > 0 {
		n := slices.Index(words, ";")
		if n < 0 {
			n = len(words)
		}
		all = append(all, s.event(b, words[0], words[1:n]))
		words = words[min(n+1, len(words)):]
	}
	return all
}

func (s *stage) event(b journal.Batch, kind string, fields []string) session.Event {
	s.Helper()
	switch kind {
	case "user":
		return session.ChunkEvent(session.UserText(fields[0]))
	case "assistant":
		var calls []session.ToolCall // of the tools that are named
		for _, name := range fields[1:] {
			calls = append(calls, session.ToolCall{ID: name, Name: name, Args: "{}"})
		}
		return session.ChunkEvent(session.AssistantText(fields[0], calls...))
	case "result":
		return session.ChunkEvent(session.Result(fields[0], fields[0], "{}", false))
	case "raw":
		schema, err := strconv.Atoi(fields[1])
		if err != nil {
			s.Fatal(err)
		}
		return session.Event{Kind: fields[0], Schema: schema, Data: fields[2]}
	}
	make, ok := payloads[kind]
	if !ok {
		s.Fatalf("event %q: there is none", kind)
	}
	v := make()
	for name, value := range map[string]any{"Run": b.Run, "Attempt": b.Attempt, "Path": b.Path} {
		if f := reflect.ValueOf(v).Elem().FieldByName(name); f.IsValid() && f.Type() == reflect.TypeOf(value) {
			f.Set(reflect.ValueOf(value))
		}
	}
	for _, f := range fields {
		name, value, found := strings.Cut(f, "=")
		if !found {
			value = "true"
		}
		s.set(v, name, value)
	}
	e, err := journal.NewEvent(kind, v)
	if err != nil {
		s.Fatal(err)
	}
	return e
}

// fill sets the fields of the value that into points to.
func (s *stage) fill(into any, named map[string]string) {
	s.Helper()
	for name, value := range named {
		s.set(into, name, value)
	}
}

// set sets one field by its name in JSON, or in Go without regard to case; a dot leads
// into a field. A duration means a time relative to now.
func (s *stage) set(into any, name, value string) {
	s.Helper()
	v := reflect.ValueOf(into).Elem()
	for part := range strings.SplitSeq(name, ".") {
		f, ok := field(v, part)
		if !ok {
			s.Fatalf("%T has no field %s", into, name)
		}
		v = f
	}
	if err := setValue(v, value); err != nil {
		s.Fatalf("field %s of %T: %v", name, into, err)
	}
}

func field(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name || strings.EqualFold(f.Name, strings.ReplaceAll(name, "_", "")) {
			return v.Field(i), true
		}
	}
	return v, false
}

func setValue(v reflect.Value, text string) error {
	d, notDuration := time.ParseDuration(text)
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = time.UnixMilli(time.Now().Add(d).UnixMilli()).UTC()
		return notDuration
	case *time.Duration:
		*p = d
		return notDuration
	case *json.RawMessage:
		*p = json.RawMessage(text)
		return nil
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(text)
		return nil
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		for one := range strings.SplitSeq(text, ",") {
			v.Set(reflect.Append(v, reflect.ValueOf(one).Convert(v.Type().Elem())))
		}
		return nil
	case v.Kind() == reflect.Int64 && notDuration == nil && text != "0":
		v.SetInt(time.Now().Add(d).UnixMilli())
		return nil
	}
	err := json.Unmarshal([]byte(text), v.Addr().Interface())
	if err != nil {
		err = json.Unmarshal([]byte(strconv.Quote(text)), v.Addr().Interface()) // such as a digest
	}
	return err
}
