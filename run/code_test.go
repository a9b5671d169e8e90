package run_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// sentinels are the errors that callers branch on, with the codes that they
// travel under.
var sentinels = map[run.Code]error{
	run.CodeBusy: run.ErrBusy, run.CodeKeyReused: run.ErrKeyReused, run.CodeNotSupported: run.ErrNotSupported,
	run.CodeUnknownRun: run.ErrUnknownRun, run.CodeState: run.ErrState, run.CodeBudget: run.ErrBudget,
	run.CodeMismatch: run.ErrMismatch, run.CodeDeadline: run.ErrDeadline, run.CodePoison: run.ErrPoison,
	run.CodeCancelled: run.ErrCancelled, run.CodeReview: run.ErrReview, run.CodeSuperseded: run.ErrSuperseded,
	run.CodeMalformed: run.ErrMalformed, run.CodeTooDeep: run.ErrTooDeep, run.CodeNestedStep: run.ErrNestedStep,
	run.CodeTruncated: run.ErrTruncated, run.CodeRefused: run.ErrRefused, run.CodeFiltered: run.ErrFiltered, run.CodeEmpty: run.ErrEmpty, run.CodeNotFound: session.ErrNotFound, run.CodeTenant: session.ErrTenant,
	run.CodeConflict: session.ErrConflict, run.CodeClosed: session.ErrClosed, run.CodeTooLarge: session.ErrTooLarge,
	run.CodeUnavailable: session.ErrUnavailable, run.CodeTimeout: context.DeadlineExceeded,
}

// TestCodes: codes are only ever added, because they are in journals.
func TestCodes(t *testing.T) {
	f := must.Get(os.Open("testdata/golden/codes.txt"))(t)
	defer f.Close()
	known := map[run.Code]bool{run.CodeError: true}
	for s := bufio.NewScanner(f); s.Scan(); {
		c := run.Code(s.Text())
		if sentinels[c] == nil && c != run.CodeError {
			t.Errorf("code %s is in journals and means nothing any more", c)
		}
		known[c] = true
	}
	for c, err := range sentinels {
		if !known[c] {
			t.Errorf("add %s at the end of testdata/golden/codes.txt", c)
		}
		if got := run.CodeOf(err); got != c {
			t.Errorf("%v travels as %s, want %s", err, got, c)
		}
	}
}

// TestErrorsSurvive: an error from a journal matches the same sentinels as the
// original.
func TestErrorsSurvive(t *testing.T) {
	for code, sentinel := range sentinels {
		err := fmt.Errorf("step 3: %w: details", sentinel)
		back := run.CodeOf(err).Err(err.Error())
		if !errors.Is(back, sentinel) || back.Error() != err.Error() || run.CodeOf(back) != code {
			t.Errorf("%v came back as %v (%s)", err, back, run.CodeOf(back))
		}
		if again := run.CodeOf(fmt.Errorf("outer: %w", back)); again != code {
			t.Errorf("%v travels as %s the second time, as %s the first", err, again, code)
		}
		for other, s := range sentinels {
			if other != code && errors.Is(back, s) {
				t.Errorf("%s came back as %s too", code, other)
			}
		}
		if run.IsControl(back) != run.IsControl(sentinel) {
			t.Errorf("%s is control before and not after, or the other way round", code)
		}
	}
	if run.CodeOf(nil) != "" || run.Code("").Err("x") != nil {
		t.Error("no error has a code")
	}
	plain := errors.New("something else")
	back := run.CodeOf(plain).Err(plain.Error())
	if run.CodeOf(back) != run.CodeError || back.Error() != plain.Error() || run.CodePoison.Err("").Error() == "" {
		t.Errorf("an error without a code came back as %v", back)
	}
	own := run.CodeOf(fmt.Errorf("model: %w", coded{})).Err("full")
	if !errors.Is(own, coded{}) || errors.Is(own, run.ErrBusy) || run.CodeOf(own) != "model_full" {
		t.Errorf("an error with a code of its own came back as %v", own)
	}
}

type coded struct{}

func (coded) Error() string     { return "full" }
func (coded) ErrorCode() string { return "model_full" }

func TestControl(t *testing.T) {
	control := []error{run.ErrSuperseded, run.ErrSuspended, run.ErrCancelled, run.ErrReview, run.ErrShutdown, session.ErrConflict, session.ErrUnavailable}
	for _, err := range control {
		if !run.IsControl(fmt.Errorf("x: %w", err)) {
			t.Errorf("%v would be recorded as an outcome", err)
		}
	}
	for code, err := range sentinels {
		if run.IsControl(err) != slices.Contains(control, err) {
			t.Errorf("%s: control is %v", code, run.IsControl(err))
		}
	}
	if run.IsControl(nil) || run.IsControl(context.Canceled) {
		t.Error("no error and an ended context are no control errors")
	}
}
