package streamstest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// LettersAndTasks counts the messages in DLQ and those waiting in TASKS.
func LettersAndTasks(t *testing.T, s *streams.Streams) (letters, tasks uint64) {
	t.Helper()
	for stream, n := range map[string]*uint64{streams.StreamDLQ: &letters, streams.StreamTasks: &tasks} {
		have := must.Get(s.Subjects(t.Context(), stream, ">"))(t)
		for _, k := range have {
			*n += k
		}
	}
	return letters, tasks
}

// ResultOf returns the outcome of a run, "" while it has no result.
func ResultOf(t *testing.T, s *streams.Streams, tenant session.Tenant, id run.ID) run.State {
	t.Helper()
	m, err := s.Messages.Last(t.Context(), streams.StreamResult, messages.RunSubject(tenant, id, messages.OnResult))
	if err != nil {
		return ""
	}
	r, err := messages.DecodeResult(m.Data)
	must.Do(t, err)
	return r.State
}

// Lend answers questions for credit as a relay does of whose runs none wait.
func Lend(t testing.TB, nc *nats.Conn) {
	t.Helper()
	sub := must.Get(nc.Subscribe(messages.NodePrefix+"credit.>", func(m *nats.Msg) { _ = m.Respond([]byte(`{"n":16}`)) }))(t)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
}

// PutLineage stores one record of a session for each commit from one to another.
func PutLineage(t *testing.T, js jetstream.JetStream, id session.ID, first, last uint64) {
	t.Helper()
	_, partition, _ := id.Locate()
	for n := first; n <= last; n++ {
		r := messages.Record{
			Schema: lineage.Schema, Kind: messages.KindChunk, Tenant: session.DefaultTenant, Session: id, Root: id,
			Partition: partition, Seq: n, Commit: n,
		}
		if n == first {
			r.Kind = messages.KindOpened
		}
		records := []messages.Record{r}
		data, err := lineage.EncodeStored(records)
		if err == nil {
			_, err = js.Publish(t.Context(), lineage.StoredSubject(records), data)
		}
		must.Do(t, err)
	}
}

// Behind makes all direct reads of a stream reach a replica that holds its first n
// messages only.
func Behind(stream string, n int) func(b []byte) bool {
	return func(b []byte) bool {
		const mark, batch = `"next_by_subj":"rath.`, `"batch":512`
		if !bytes.Contains(b, []byte("DIRECT.GET."+stream)) || !bytes.Contains(b, []byte(mark)) {
			return true
		}
		var from uint64
		_, _ = fmt.Sscanf(string(b[bytes.Index(b, []byte(`{"seq":`)):]), `{"seq":%d`, &from)
		if from > uint64(n) {
			return natstest.Replace(mark, `"next_by_subj":"none.`)(b)
		}
		return natstest.Replace(batch, fmt.Sprintf(`"batch":%d`, uint64(n)+1-from))(b)
	}
}
