package egress

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
)

const (
	// MaxRequests is the maximum number of requests of the commands of one call.
	MaxRequests = 1000
	// maxKept is the number of requests that are kept one by one, the first ones.
	maxKept = 64
	// maxPath is the maximum number of bytes kept of a path with its query.
	maxPath = 256
)

// requests are the requests of calls since the last take.
type requests struct {
	mu   sync.Mutex
	n    int
	kept []*entry
}

// entry is a request in progress.
type entry struct {
	request        journal.NetworkRequest // Status and Refused are guarded by requests.mu
	sent, received atomic.Int64
}

// begin records a request. It returns false if there are too many.
func (r *requests) begin(host, method, path string) (*entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &entry{request: journal.NetworkRequest{Host: excerpt.Clip(host, maxPath), Method: excerpt.Clip(method, 16), Path: excerpt.Clip(path, maxPath)}}
	if r.n++; len(r.kept) < maxKept {
		r.kept = append(r.kept, e)
	}
	return e, r.n <= MaxRequests
}

// ends records the answer of a request.
func (r *requests) ends(e *entry, status int, refused string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.request.Status, e.request.Refused = status, excerpt.Clip(refused, maxPath)
}

// take returns the requests since the last take, and the number of omitted ones.
func (r *requests) take() (list []journal.NetworkRequest, more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.kept {
		q := e.request
		q.Sent, q.Received = e.sent.Load(), e.received.Load()
		list = append(list, q)
	}
	more = r.n - len(list)
	r.kept, r.n = nil, 0
	return list, more
}

// meter counts the bytes of a body.
type meter struct {
	io.ReadCloser
	n *atomic.Int64
}

func (m meter) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	m.n.Add(int64(n))
	return n, err
}
