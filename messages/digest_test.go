package messages_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
)

// TestDigest: the digest of a task follows FORMAT.md, so that a client can compute it
// from its body.
func TestDigest(t *testing.T) {
	half := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:16])
	}
	for _, tc := range []struct{ body, task, session string }{
		{`{"id":"r1"}`, `{"run":"r1","workflow":"agent"}`, ""},
		{`{"session":"notes","id":"r1","input": {"b" : 1.5, "a":"é"}}`, `{"input":"{\"b\" : 1.5, \"a\":\"é\"}","run":"r1","workflow":"agent"}`, "notes"},
		{
			`{"id":"r2","workspace":"00000000000000000000000000000000000000000000000000000000000000aa","not_before":"2026-11-28T10:00:00Z","sandbox":{"allow":"b/../c, a","backend":"docker","image":"debian:12"}}`,
			`{"not_before":1795860000000,"run":"r2","sandbox":{"allow":"a,c","backend":"docker","image":"debian:12"},"workflow":"agent","workspace":"00000000000000000000000000000000000000000000000000000000000000aa"}`,
			"",
		},
		{
			`{"id":"r1","model":"slow","tools":["b","a"],"mcp":["m"],"budget":{"time_ms":2,"tokens":3},"deadline":"2026-11-28T10:00:00.5+01:00","fork_of":"main","revision":"2","sandbox":{"limits":"pids=200,memory=512m","network":"none"}}`,
			`{"budget":{"time":2000000,"tokens":3},"deadline":1795856400500,"fork_of":{"session":"main","version":0},"mcp":["m"],"model":"slow","revision":"2","run":"r1","sandbox":{"limits":"memory=512m,pids=200","network":"none"},"tools":["b","a"],"workflow":"agent"}`,
			"",
		},
	} {
		m := must.Get(messages.DecodeTask([]byte(tc.body)))(t)
		want := half(half("acme\x00"+tc.task) + "\x00" + tc.session)
		if got := must.Get(m.Digest("acme", "agent"))(t); got != want {
			t.Errorf("%s: digest %s, want %s", tc.body, got, want)
		}
		task := must.Get(translate.Task(&m, "acme", "agent"))(t)
		if got := half(task.Digest() + "\x00" + m.Session); got != want { // an import computes it from run.submitted
			t.Errorf("%s: digest of the recorded task %s, want %s", tc.body, got, want)
		}
	}
}
