package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestShares lets relays come, go and hold the partitions of others, at random: the plan is
// even, leaves every relay its partitions up to its share, and is stable once it was
// followed.
func TestShares(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		partitions := 1 + dice.Uint32N(9)
		holds := map[string][]uint32{}
		for i := range 1 + dice.IntN(6) {
			holds[fmt.Sprint("r", i)] = nil
		}
		names := make([]string, 0, len(holds))
		for id := range holds {
			names = append(names, id)
		}
		slices.Sort(names)
		for p := range partitions + 1 { // one of another generation's number
			for range dice.IntN(3) {
				id := names[dice.IntN(len(names))]
				holds[id] = append(holds[id], p)
			}
		}
		owners := shares(partitions, holds)
		got := followedPlan(owners, names)
		least, most := int(partitions)/len(names), (int(partitions)+len(names)-1)/len(names)
		for _, id := range names {
			if n := len(got[id]); n < least || n > most {
				t.Fatalf("%s has %d of %d partitions: %v of %v", id, n, partitions, owners, holds)
			}
		}
		for p, id := range owners {
			holders := slices.DeleteFunc(slices.Clone(names), func(h string) bool { return !slices.Contains(holds[h], uint32(p)) })
			if len(holders) == 0 || holders[0] == id {
				continue
			}
			if n := len(got[holders[0]]); n < least {
				t.Fatalf("partition %d goes from %s, which keeps %d, to %s: %v of %v", p, holders[0], n, id, owners, holds)
			}
		}
		if again := shares(partitions, got); !slices.Equal(again, owners) {
			t.Fatalf("%v becomes %v", owners, again)
		}
		if len(names) == 1 {
			continue
		}
		// One dies.
		delete(got, names[dice.IntN(len(names))])
		for p, id := range shares(partitions, got) {
			if _, lives := got[owners[p]]; lives && owners[p] != id {
				t.Fatalf("partition %d of %v goes from %s to %s when another one dies", p, owners, owners[p], id)
			}
		}
	}
}

// followedPlan returns the holdings after a plan was followed.
func followedPlan(owners, names []string) map[string][]uint32 {
	got := map[string][]uint32{}
	for _, id := range names {
		got[id] = nil
	}
	for p, id := range owners {
		got[id] = append(got[id], uint32(p))
	}
	return got
}
