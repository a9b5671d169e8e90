//go:build e2e && linux

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// headModel is the newest version of a session as its readers see it: a
// register that others move forward at unknown times. A read takes
// effect at one moment between question and answer, so none may answer with
// less than one that had been answered before it was asked.
var headModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, op := range history {
			id := op.Input.(string)
			by[id] = append(by[id], op)
		}
		var all [][]porcupine.Operation
		for _, ops := range by {
			all = append(all, ops)
		}
		return all
	},
	Init: func() any { return 0 },
	Step: func(state, _, output any) (bool, any) {
		h, was := output.(head), state.(int)
		if !h.Asked {
			return true, max(was, h.Version) // a late report may be old
		}
		return h.Version >= was, h.Version
	},
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%s -> %d", input, output.(head).Version)
	},
}

// headsPatience bounds the checking of a history.
const headsPatience = time.Minute

// staleHead returns an error if a read of a head is stale.
func staleHead(heads []head) error {
	var ops []porcupine.Operation
	for i, h := range heads {
		ops = append(ops, porcupine.Operation{ClientId: i, Input: h.Session, Call: int64(h.Start), Output: h, Return: int64(h.End)})
	}
	switch result := porcupine.CheckOperationsTimeout(headModel, ops, headsPatience); result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%d reads of heads could not be checked within %v", len(heads), headsPatience)
	}
	for _, one := range headModel.Partition(ops) {
		if !porcupine.CheckOperations(headModel, one) {
			return fmt.Errorf("the reads of the head of session %s are not linearizable: %s", one[0].Input, older(one))
		}
	}
	return fmt.Errorf("%d reads of heads are not linearizable", len(heads))
}

// older describes the reads of one session that are older than an earlier one.
func older(ops []porcupine.Operation) string {
	var all []string
	for _, op := range ops {
		h := op.Output.(head)
		for _, before := range ops {
			if was := before.Output.(head); h.Asked && was.End < h.Start && was.Version > h.Version {
				all = append(all, fmt.Sprintf("version %d from %v to %v, after version %d from %v to %v", h.Version, h.Start, h.End, was.Version, was.Start, was.End))
				break
			}
		}
	}
	if len(all) > 10 {
		all = append(all[:10], fmt.Sprintf("and %d more", len(all)-10))
	}
	return strings.Join(all, "; ")
}

// TestHeadModel: the checker sees a read that is too old, and takes every
// order that may have been.
func TestHeadModel(t *testing.T) {
	read := func(start, end, version int) head {
		return head{Session: "s", Start: time.Duration(start), End: time.Duration(end), Version: version, Asked: true}
	}
	told := func(at, version int) head {
		return head{Session: "s", Start: time.Duration(at), End: time.Duration(at), Version: version}
	}
	for name, c := range map[string]struct {
		heads []head
		good  bool
	}{
		"growing":                    {[]head{read(0, 1, 1), read(2, 3, 1), read(4, 5, 7)}, true},
		"at the same time":           {[]head{read(0, 10, 7), read(1, 9, 1)}, true},
		"older than before":          {[]head{read(0, 1, 7), read(2, 3, 6)}, false},
		"older than told":            {[]head{told(1, 7), read(2, 3, 6)}, false},
		"told late":                  {[]head{read(0, 1, 9), told(2, 7), read(3, 4, 9)}, true},
		"between two of another one": {[]head{read(0, 1, 3), {Session: "other", Start: 2, End: 3, Version: 1, Asked: true}}, true},
		"three of which one is late": {[]head{read(0, 5, 3), read(6, 20, 9), read(7, 9, 3), read(21, 22, 3)}, false},
	} {
		if err := staleHead(c.heads); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
