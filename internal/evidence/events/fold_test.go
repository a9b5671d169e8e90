package events_test

import (
	"encoding/json"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/events"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/transcript"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

var update = flag.Bool("update", false, "write the transcripts again")

// TestFold plays the transcripts in testdata: records, deltas and live states, and the
// events that a fold makes of them. The fields run and session are r1 and s1 where a
// command names no others.
func TestFold(t *testing.T) {
	files := must.Get(filepath.Glob("testdata/*.txt"))(t)
	if len(files) == 0 {
		t.Fatal("no transcripts")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			var f events.Fold
			transcript.Play(t, file, &transcript.Options{Update: *update}, func(command string) string {
				verb, body, _ := strings.Cut(command, " ")
				body = strings.Replace(body, "{", `{"run":"r1","session":"s1",`, 1)
				body = strings.Replace(body, ",}", "}", 1)
				var out []events.Event
				var lost bool
				switch verb {
				case "record":
					var r messages.Record
					must.Do(t, json.Unmarshal([]byte(body), &r))
					out = f.Record(&r)
				case "delta":
					var d messages.Delta
					must.Do(t, json.Unmarshal([]byte(body), &d))
					out, lost = f.Delta(&d)
				case "live":
					var l messages.Live
					must.Do(t, json.Unmarshal([]byte(body), &l))
					out = f.Live(&l)
				case "open":
					out = f.Open()
				case "forget":
					f.Forget(run.ID(body))
				default:
					t.Fatalf("no command %q", command)
				}
				var b strings.Builder
				for i := range out {
					e := out[i]
					if e.Run == "r1" {
						e.Run = ""
					}
					if e.Session == "s1" {
						e.Session = ""
					}
					if e.Place != nil && *e.Place == (messages.EventPlace{}) {
						e.Place = nil
					}
					b.Write(must.Get(messages.Encode(&e))(t))
					b.WriteByte('\n')
				}
				if lost {
					b.WriteString("deltas are missing\n")
				}
				return b.String()
			})
		})
	}
}

// TestOfEveryKind: each kind of record has events, the first of which stands for the whole
// record, and at most MaxOf.
func TestOfEveryKind(t *testing.T) {
	known := map[messages.EventKind]bool{}
	for _, k := range messages.EventKinds() {
		known[k] = true
	}
	for _, k := range append(messages.Kinds(), "of a later release") {
		for _, r := range []messages.Record{
			{Kind: k, Session: "s1", Summary: "x"},
			{Kind: k, Session: "s1", Run: "r1", Step: "0", Summary: "x", HeadFrom: "a", Head: "b", Waits: []messages.Wait{{Kind: run.WaitApproval}}},
		} {
			out := events.Of(&r)
			if len(out) == 0 || len(out) > events.MaxOf || out[0].Text != "x" || out[0].Record != k {
				t.Errorf("%s: %+v", k, out)
			}
			for _, e := range out {
				if !known[e.Kind] || e.Place == nil {
					t.Errorf("%s: an event of kind %q at %v", k, e.Kind, e.Place)
				}
			}
		}
	}
}
