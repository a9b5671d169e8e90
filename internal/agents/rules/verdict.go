package rules

// Verdict is the decision about a call. The zero Verdict is Allow.
type Verdict uint8

// The verdicts, the strictest last.
const (
	Allow  Verdict = iota // the call runs
	Ask                   // a person approves it first
	Refuse                // it does not run, and the model gets the reason
)

var verdicts = [...]string{"allow", "ask", "refuse"}

// String returns "allow", "ask" or "refuse".
func (v Verdict) String() string { return verdicts[min(int(v), len(verdicts)-1)] }

// Decision is a verdict with its reason, a clause such as "rule 2 of rules.yaml asks".
type Decision struct {
	Verdict Verdict
	Reason  string
}

// match is how far a condition holds.
type match uint8

const (
	no match = iota
	maybe
	yes
)

func holds(b bool) match {
	if b {
		return yes
	}
	return no
}
