package git_test

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestBomb: an object that claims to be of many gigabytes gets no memory for them.
func TestBomb(t *testing.T) {
	dir := made(t)
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	fmt.Fprintf(z, "commit %d\x00tree ", int64(16<<30))
	must.Do(t, z.Close())
	id := strings.Repeat("ab", 20)
	put(t, dir, ".git/objects/ab/"+id[2:], b.String(), 0o644)
	put(t, dir, ".git/refs/heads/main", id+"\n", 0o644)
	err := taken(t, dir)
	if err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("%v", err)
	}
}
