// Package must ends a test at an error that it does not expect, in one line.
//
//	data := must.Get(os.ReadFile(name))(t)
//	must.Do(t, os.Remove(name))
//
// An error that a test is about is compared where it comes up, with words of its own.
// Without an error a call costs no more than the comparison, so that it may stand in the
// loop of a benchmark.
package must

import "testing"

// Do ends the test if err is not nil.
func Do(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Get returns a function that ends the test if err is not nil, and returns v.
func Get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return v
	}
}

// Pair is Get of two values.
func Pair[A, B any](a A, b B, err error) func(testing.TB) (A, B) {
	return func(t testing.TB) (A, B) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return a, b
	}
}

// Report fails the test if err is not nil, but lets it continue: for checks at the end of a
// test.
func Report(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Error(err)
	}
}
