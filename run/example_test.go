package run_test

import (
	"errors"
	"fmt"

	"github.com/rathcluster/rath/run"
)

// An error from a journal or from the wire is the sentinel of its code.
func ExampleCode_Err() {
	code := run.CodeOf(fmt.Errorf("%w: 3 of 3 steps used", run.ErrBudget))
	err := code.Err("3 of 3 steps used")
	fmt.Println(code, errors.Is(err, run.ErrBudget))
	// Output: budget_exceeded true
}

// Paths are ordered as a workflow executes them.
func ExampleComparePaths() {
	second, tenth := run.Path("").Index(2), run.Path("").Index(10)
	fmt.Println(run.ComparePaths(second, tenth) < 0, second.Child("fast"))
	// Output: true 2.fast
}
