package flowtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// shop waits for events alone, in a Gather, in a Select and in vain.
func shop(ctx context.Context, s session.Session) (session.Session, error) {
	amount := 0
	for range 2 {
		paid, err := flow.AwaitEvent(ctx, "invoice.paid", "4711", nil)
		if err == nil {
			err = paid.Decode(&amount)
		}
		if err != nil {
			return s, err
		}
		s = says(s, "paid %d as %d", amount, paid.Seq)
	}
	var keys [3]string
	var fns []func(context.Context) error
	for i, key := range []string{"a", "b", "a"} {
		fns = append(fns, func(ctx context.Context) error {
			e, err := flow.AwaitEvent(ctx, "shipped", key, nil)
			keys[i] = e.Key
			return err
		})
	}
	if err := flow.Gather(ctx, nil, fns...); err != nil {
		return s, err
	}
	s = says(s, "shipped %s", strings.Join(keys[:], ""))
	for _, name := range []string{"refund", "never"} {
		event, day := flow.OnEvent(name, "4711", nil), flow.OnTimer(24*time.Hour)
		first, err := flow.Select(ctx, day, event)
		if err != nil {
			return s, err
		}
		s = says(s, "%s: %t %s", name, first == event, event.Value.Value)
	}
	_, err := flow.AwaitEvent(ctx, "never", "", &flow.AwaitOptions{Timeout: time.Hour})
	s = says(s, "never: %t", errors.Is(err, run.ErrExpired))
	for _, name := range []string{"", strings.Repeat("n", 10<<10), "a b"} {
		if _, err := flow.AwaitEvent(ctx, name, "k", nil); !errors.Is(err, run.ErrMalformed) {
			return s, errors.New("a bad name was awaited")
		}
	}
	if _, err = flow.AwaitEvent(ctx, "n", strings.Repeat("k", 10<<10), nil); !errors.Is(err, run.ErrMalformed) {
		return s, errors.New("a bad key was awaited")
	}
	if _, err = flow.Select(ctx, flow.OnEvent("a b", "k", nil)); !errors.Is(err, run.ErrMalformed) {
		return s, errors.New("a bad name was awaited in a Select")
	}
	return s, nil
}

func shopEvents() *flowtest.Options {
	amounts := map[run.Path]int{}
	return &flowtest.Options{Answer: func(q run.Question) (any, error) {
		if q.Kind != run.WaitEvent || q.Name == "never" {
			return nil, run.ErrExpired
		}
		if amounts[q.Step] == 0 {
			amounts[q.Step] = 10 + len(amounts)
		}
		return amounts[q.Step], nil
	}}
}

// TestEvents: a run gets each event of a name and a key once, in order.
func TestEvents(t *testing.T) {
	s := flowtest.Run(t, flow.Func(shop), session.New(session.UserText("go")), "testdata/none.txtar", shopEvents())
	want := []string{"go", "paid 10 as 1", "paid 11 as 2", "shipped aba", "refund: true ", "never: false ", "never: true"}
	rows(t, s, want)
}

func TestEventsCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, func() flow.Workflow { return flow.Func(shop) }, session.New(session.UserText("go")), "testdata/none.txtar", shopEvents())
}
