package dispatch

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestQuotasWhileRead: while a call reads the list of quotas, the usage of calls is counted.
func TestQuotasWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, answer, got := 0, make(chan struct{}), make(chan int64)
		q := newQuotas(nil, func(context.Context) (map[session.Tenant]messages.Quota, error) {
			reads++
			<-answer
			return map[session.Tenant]messages.Quota{"a": {QuotaAmounts: messages.QuotaAmounts{Runs: 7}}}, nil
		}, commitlog.IDGenerator{Generation: 1, Partitions: 1})
		ask := func() {
			l, err := q.Limit(t.Context(), "a")
			must.Report(t, err)
			got <- l.Daily
		}
		go ask()
		synctest.Wait()
		if s := q.unwritten("a"); s != (spent{}) {
			t.Errorf("unwritten: %+v", s)
		}
		close(answer)
		first := <-got
		go ask()
		if n := <-got; first != 7 || n != 7 || reads != 1 {
			t.Errorf("quotas of %d and %d runs, after %d reads", first, n, reads)
		}
	})
}
