package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/session"
)

// sweeper is the variable that makes the test's program a sweep of the server at its value.
const sweeper = "RATH_TEST_SWEEPER"

// sweepUntilKilled sweeps blobs of every age and prints a line after each removal.
func sweepUntilKilled(at string) int {
	u, err := url.Parse(at)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	password, _ := u.User.Password()
	s, err := streams.OpenStore(context.Background(), &streams.Options{
		Options: conn.Options{URL: "nats://" + u.Host, User: u.User.Username(), Password: password, Inbox: conn.NodeInbox}, Partitions: 2,
		Probe: func(context.Context) ([]streams.SyncState, error) {
			return []streams.SyncState{{Server: "test", Always: true}}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer s.Conn.Close()
	got, err := over(s).SweepBlobs(context.Background(), &SweepOptions{
		fresh: -24 * time.Hour, Grace: time.Nanosecond, after: func(step string) error { fmt.Println(step); return nil },
	})
	fmt.Println("ended", got, err)
	return 0
}

// TestSweepKilled ends a sweeping process by SIGKILL, earlier and later: no blob is left in
// part, no named blob is removed, and the last sweep finishes.
func TestSweepKilled(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	op := layer.Operator(t, srv)
	must.Do(t, op.streams.Provision(t.Context()))
	c := layer.Dial(t, streamstest.NodeOptions(srv))
	s := shelfOf(t, c)
	var unnamed []blob.Digest
	for i := range uint64(30) {
		unnamed = append(unnamed, s.put(long(i)))
	}
	named := s.put(long(99))
	names(t, c, "s1", session.ChunkEvent(session.UserText(named.String())))
	at := must.Get(url.Parse(srv.URL()))(t)
	at.User = url.UserPassword(srv.Operator())
	for _, after := range []int{0, 1, 7, 32, 1000} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), sweeper+"="+at.String())
		out, err := cmd.StdoutPipe()
		must.Do(t, err)
		must.Do(t, cmd.Start())
		last := ""
		for lines, n := bufio.NewScanner(out), -2; lines.Scan(); {
			if last = lines.Text(); last == "removed" || last == "listed" || last == "marked" {
				if n++; n >= after {
					must.Do(t, cmd.Process.Kill())
				}
			}
		}
		err = cmd.Wait()
		t.Logf("killed after %d: %v, %s", after, err, last)
		gone := 0
		for _, d := range unnamed {
			switch err := s.read(d); {
			case errors.Is(err, blob.ErrNotFound):
				gone++
			case err != nil:
				t.Errorf("killed after %d: %v", after, err)
			}
		}
		if after == 1000 && (err != nil || gone != len(unnamed)) {
			t.Errorf("the last sweep: %v, %s; %d of %d are gone", err, last, gone, len(unnamed))
		}
		s.gone("named", named, false)
	}
}
