package run

import "fmt"

// Hold, as the on_failure of a task, makes the run wait for a decision instead of taking
// the failure of a step's last try: its state is NeedsReview. Again makes one more try,
// Happened gives the step a value, and Fail ends the run. It holds at calls of models and
// at functions of the workflow. The failure of a tool is an answer for its agent. A
// failure at which no try helps, such as one that the author marked as permanent, is
// returned as always.
const Hold = "hold"

// ValidOnFailure checks the on_failure of a task: it is "" or Hold. The error wraps
// ErrMalformed.
func ValidOnFailure(s string) error {
	if s != "" && s != Hold {
		return fmt.Errorf("run: on_failure %.40q: %w; give %q, or none", s, ErrMalformed, Hold)
	}
	return nil
}
