package kubernetes

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestTrouble parses states of pods as the API server reports them.
func TestTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		status string
		final  bool
		words  []string
	}{
		"no such image":      {`{"phase":"Pending","containerStatuses":[{"name":"sandbox","image":"a@sha256:0","state":{"waiting":{"reason":"ImagePullBackOff","message":"not found"}}}]}`, true, []string{"a@sha256:0", "ImagePullBackOff", "not found", "name an image"}},
		"first try to pull":  {`{"phase":"Pending","containerStatuses":[{"name":"sandbox","image":"a","state":{"waiting":{"reason":"ErrImagePull","message":"timeout"}}}]}`, false, []string{"ErrImagePull", "timeout"}},
		"secret is to come":  {`{"phase":"Pending","containerStatuses":[{"name":"sandbox","image":"a","state":{"waiting":{"reason":"CreateContainerConfigError","message":"secret not found"}}}]}`, false, []string{"secret not found"}},
		"no room":            {`{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available: 3 Insufficient cpu."}]}`, false, []string{"Insufficient cpu", "smaller limits"}},
		"out of memory":      {`{"phase":"Failed","containerStatuses":[{"name":"sandbox","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}`, true, []string{"OOMKilled", "limit of memory"}},
		"program not copied": {`{"phase":"Pending","initContainerStatuses":[{"name":"program","state":{"terminated":{"exitCode":1,"reason":"Error"}}}],"containerStatuses":[{"name":"sandbox","state":{"waiting":{"reason":"PodInitializing"}}}]}`, true, []string{"container program", "code 1"}},
		"evicted":            {`{"phase":"Failed","reason":"Evicted","message":"low on memory"}`, true, []string{"evicted", "low on memory"}},
		"too long":           {`{"phase":"Failed","reason":"DeadlineExceeded","message":"longer than the deadline"}`, true, []string{"DeadlineExceeded"}},
		"on its way":         {`{"phase":"Pending","initContainerStatuses":[{"name":"program","state":{"terminated":{"exitCode":0,"reason":"Completed"}}}],"containerStatuses":[{"name":"sandbox","state":{"waiting":{"reason":"PodInitializing"}}}]}`, false, []string{"Pending"}},
	} {
		var s seen
		must.Do(t, json.Unmarshal([]byte(`{"status":`+tc.status+`}`), &s))
		why, final := s.trouble()
		if final != tc.final {
			t.Errorf("%s: final %t", name, final)
		}
		for _, w := range tc.words {
			if !strings.Contains(why, w) {
				t.Errorf("%s: %q, want %q in it", name, why, w)
			}
		}
	}
}
