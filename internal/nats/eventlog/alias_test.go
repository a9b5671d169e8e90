package eventlog

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

// TestTaskDigest: the digest of a task is what FORMAT.md says, so that a client can compute
// that of the body it sent.
func TestTaskDigest(t *testing.T) {
	half := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:16])
	}
	for _, tc := range []struct{ body, task, session string }{
		{`{"id":"r1"}`, `{"run":"r1","workflow":"agent"}`, ""},
		{`{"session":"notes","id":"r1","input": {"b" : 1.5, "a":"é"}}`, `{"input":"{\"b\" : 1.5, \"a\":\"é\"}","run":"r1","workflow":"agent"}`, "notes"},
		{
			`{"id":"r1","model":"slow","tools":["b","a"],"mcp":["m"],"budget":{"time_ms":2,"tokens":3},"deadline":"2026-11-28T10:00:00.5+01:00","fork_of":"main","revision":"2","sandbox":{"limits":"pids=200,memory=512m","network":"none"}}`,
			`{"budget":{"time":2000000,"tokens":3},"deadline":1795856400500,"fork_of":{"session":"main","version":0},"mcp":["m"],"model":"slow","revision":"2","run":"r1","sandbox":{"limits":"memory=512m,pids=200","network":"none"},"tools":["b","a"],"workflow":"agent"}`,
			"",
		},
	} {
		m := must.Get(messages.DecodeTask([]byte(tc.body)))(t)
		task := must.Get(m.Run("acme", "agent"))(t)
		if got, want := TaskDigest(task, m.Session), half(half("acme\x00"+tc.task)+"\x00"+tc.session); got != want {
			t.Errorf("%s: digest %s, want %s", tc.body, got, want)
		}
	}
}
