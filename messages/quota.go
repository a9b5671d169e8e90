package messages

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/session"
)

// Quota is the quota of a tenant for each UTC day, as the operator set it, and its usage on
// the current day.
type Quota struct {
	QuotaAmounts
	At int64  `json:"at,omitempty"` // of the setting, in Unix milliseconds
	By string `json:"by,omitempty"` // the user who set it
	// Day is the current day, such as 2026-11-30, and Ends its end, in Unix milliseconds.
	Day  string `json:"day,omitempty"`
	Ends int64  `json:"ends,omitempty"`
	// Opened are further amounts on the day OpenedOn.
	Opened   *QuotaAmounts `json:"opened,omitempty"`
	OpenedOn string        `json:"opened_on,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Says     string        `json:"says,omitempty"` // the claim of its sender, see [Control]
	// Setting counts the changes of the quota. Zero is none.
	Setting uint64 `json:"setting,omitempty"`
	Used    struct {
		Blocked  int64 `json:"blocked,omitempty"` // model calls that wait for it
		MicroUSD int64 `json:"micro_usd,omitempty"`
		Running  int64 `json:"running,omitempty"`
		Runs     int64 `json:"runs,omitempty"`
		Tokens   int64 `json:"tokens,omitempty"`
		Waiting  int64 `json:"waiting,omitempty"` // runs that wait for it
	} `json:"used,omitzero"`
}

// QuotaAmounts are amounts of a quota, in which zero is unlimited.
type QuotaAmounts struct {
	Concurrency int64 `json:"concurrency,omitempty"` // runs that have begun and not ended
	MicroUSD    int64 `json:"micro_usd,omitempty"`   // of the model calls of a day
	Runs        int64 `json:"runs,omitempty"`        // that begin on a day
	Tokens      int64 `json:"tokens,omitempty"`      // of the model calls of a day
}

// MaxQuota bounds an amount of a quota.
const MaxQuota = 1_000_000_000_000_000

// On returns the amounts of a day such as 2026-11-30.
func (q *Quota) On(day string) QuotaAmounts {
	a, o := q.QuotaAmounts, q.Opened
	if o == nil || q.OpenedOn != day {
		return a
	}
	for _, f := range []struct {
		to   *int64
		more int64
	}{{&a.Runs, o.Runs}, {&a.Tokens, o.Tokens}, {&a.MicroUSD, o.MicroUSD}} {
		if *f.to > 0 {
			*f.to = min(*f.to+f.more, MaxQuota)
		}
	}
	return a
}

// check returns the reason why a request about quotas does not fit its verb.
func (a *QuotaAmounts) check(verb string) error {
	if a == nil {
		if verb == VerbQuotaSet {
			return &strict.Error{Message: verb, Field: "quota", Problem: "it is missing", Remedy: "send an amount to set"}
		}
		return nil
	}
	for _, f := range []struct {
		name string
		n    int64
	}{{"concurrency", a.Concurrency}, {"micro_usd", a.MicroUSD}, {"runs", a.Runs}, {"tokens", a.Tokens}} {
		if f.n < 0 || f.n > MaxQuota {
			return &strict.Error{Message: verb, Field: "quota." + f.name, Problem: fmt.Sprintf("%d", f.n), Remedy: fmt.Sprintf("send 1 to %d; %s lifts the quota", int64(MaxQuota), VerbQuotaRemove)}
		}
	}
	switch {
	case *a == (QuotaAmounts{}) && verb == VerbQuotaSet:
		return &strict.Error{Message: verb, Field: "quota", Problem: "it has no amount", Remedy: "send one to set; " + VerbQuotaRemove + " lifts the quota"}
	case a.Concurrency != 0 && verb == VerbQuotaOpen:
		return &strict.Error{Message: verb, Field: "quota.concurrency", Problem: "it is no amount of a day", Remedy: "set another concurrency with " + VerbQuotaSet}
	case verb == VerbQuotaRemove:
		return &strict.Error{Message: verb, Field: "quota", Problem: "it is no part of this request", Remedy: "leave it out: the whole quota is removed"}
	}
	return nil
}

// QuotaSubject is the subject of a verb for the quota of a tenant. Only an operator may
// publish there.
func QuotaSubject(t session.Tenant, user, verb string) string {
	thing, verb, _ := strings.Cut(verb, ".")
	return ControlPrefix + string(t) + "." + user + "." + thing + "." + string(t) + "." + verb
}
