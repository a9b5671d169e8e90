package llm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The maximum number of a provider's rules, and of signs of each kind in a rule.
const (
	MaxFailures = 64
	MaxSigns    = 64
)

// FailureRule assigns failed answers of a server to a class. If there are Codes, Words
// or Regex, at least one of them must match; if there is a Status, the answer's status
// must be in it.
type FailureRule struct {
	Code Code `json:"class"`
	// Status are HTTP statuses of the answer, 400 to 599.
	Status []int `json:"status,omitempty"`
	// Codes are whole values of a code, type or reason of the answer, in any case.
	Codes []string `json:"code,omitempty"`
	// Words are texts of the answer, in any case.
	Words []string `json:"words,omitempty"`
	// Regex are regular expressions, in the syntax of package regexp and for any case.
	Regex []string `json:"regex,omitempty"`
}

// Validate checks a rule. Its error names the sign, and has no code.
func (r FailureRule) Validate() error {
	if !slices.Contains(codes, r.Code) || r.Code == CodeNoModel || r.Code == CodeNoKey {
		return fmt.Errorf("class %q: want one of %s", Clip(string(r.Code), 40), strings.Join(FailureClasses(), ", "))
	}
	if len(r.Status)+len(r.Codes)+len(r.Words)+len(r.Regex) == 0 {
		return fmt.Errorf("%s: want status, code, words or regex", r.Code)
	}
	if max(len(r.Status), len(r.Codes), len(r.Words), len(r.Regex)) > MaxSigns {
		return fmt.Errorf("%s: want at most %d of each", r.Code, MaxSigns)
	}
	for _, s := range r.Status {
		if s < 400 || s > 599 {
			return fmt.Errorf("%s: status %d: want a status of a failure, 400 to 599", r.Code, s)
		}
	}
	for _, list := range [][]string{r.Codes, r.Words, r.Regex} {
		for _, s := range list {
			if strings.TrimSpace(s) == "" || len(s) > MaxNameLen || !printable(s) {
				return fmt.Errorf("%s: %q: want 1 to %d printable bytes", r.Code, Clip(s, 40), MaxNameLen)
			}
		}
	}
	for _, s := range r.Regex {
		if _, err := regexp.Compile("(?i)" + s); err != nil {
			return fmt.Errorf("%s: regex %q: %v", r.Code, Clip(s, 80), err)
		}
	}
	return nil
}

// FailureClasses are the classes that a rule may have.
func FailureClasses() []string {
	var all []string
	for _, c := range codes {
		if c != CodeNoModel && c != CodeNoKey {
			all = append(all, string(c))
		}
	}
	return all
}

// Matches reports whether an answer has the signs of r, which must be valid: its status
// (0 for an error in a stream), its codes and its text.
func (r FailureRule) Matches(status int, codes []string, text string) bool {
	if len(r.Status) > 0 && !slices.Contains(r.Status, status) {
		return false
	}
	if len(r.Codes)+len(r.Words)+len(r.Regex) == 0 {
		return true
	}
	for _, want := range r.Codes {
		if slices.ContainsFunc(codes, func(c string) bool { return strings.EqualFold(c, want) }) {
			return true
		}
	}
	lower := strings.ToLower(text)
	for _, want := range r.Words {
		if strings.Contains(lower, strings.ToLower(want)) {
			return true
		}
	}
	return slices.ContainsFunc(r.Regex, func(s string) bool {
		re, err := regexp.Compile("(?i)" + s)
		return err == nil && re.MatchString(text)
	})
}

func (r FailureRule) equal(o FailureRule) bool {
	return r.Code == o.Code && slices.Equal(r.Status, o.Status) && slices.Equal(r.Codes, o.Codes) && slices.Equal(r.Words, o.Words) && slices.Equal(r.Regex, o.Regex)
}
