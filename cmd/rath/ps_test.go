package main

import (
	"slices"
	"testing"

	"github.com/rathcluster/rath/run"
)

// TestShortRuns wants what is typed from a table to name one of its runs.
func TestShortRuns(t *testing.T) {
	for _, c := range []struct{ ids, want []run.ID }{
		{nil, nil},
		{[]run.ID{"one", "one-r1", "two"}, []run.ID{"one", "one-r1", "two"}},
		{[]run.ID{"abcdefghijklmnopqrst", "bcdefghijklmnopqrstu"}, []run.ID{"abcdefghijkl", "bcdefghijklm"}},
		{
			[]run.ID{"bench-3r2ljzaaaa", "bench-3r2ljzabaa", "bench-3r2ljzbbbb", "x"},
			[]run.ID{"bench-3r2ljzaa", "bench-3r2ljzab", "bench-3r2ljzbb", "x"},
		},
		{ // a run and those that were made from it
			[]run.ID{"abcdefghijklmnopqrst-r2", "abcdefghijklmnopqrst", "abcdefghijklmnopqrst-r1", "abcdefghijklmnopqrst"},
			[]run.ID{"abcdefghijklmnopqrst-r2", "abcdefghijklmnopqrst", "abcdefghijklmnopqrst-r1", "abcdefghijklmnopqrst"},
		},
	} {
		short := shortRuns(c.ids)
		var got []run.ID
		for _, id := range c.ids {
			got = append(got, run.ID(short(id)))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q are written %q, want %q", c.ids, got, c.want)
		}
	}
}
