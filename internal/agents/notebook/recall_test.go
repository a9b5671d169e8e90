package notebook

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/memory"
)

//go:embed testdata/recall.txt
var recallData string

// TestRecall measures the share of questions whose answer is found. The expected figures
// are those of the last change of the analysis. A change that lowers them needs a reason; a
// change that raises them updates them. The reference is BM25 over ASCII words.
func TestRecall(t *testing.T) {
	t.Parallel()
	m := New(nil)
	var names []string
	var docs [][]string
	type question struct {
		text   string
		answer string
	}
	var questions []question
	for line := range strings.Lines(recallData) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "? "); ok {
			text, answer, _ := strings.Cut(text, " => ")
			questions = append(questions, question{text, answer})
		} else if name, text, ok := strings.Cut(line, ": "); ok && line[0] != '#' {
			must.Do(t, m.Write(t.Context(), "memory://user/"+name, text, memory.Origin{}))
			names = append(names, name)
			docs = append(docs, asciiWords(text))
		}
	}

	type quality struct {
		first, third int
		mrr          float64
	}
	count := func(q *quality, rank int) {
		if rank < 0 {
			return
		}
		if rank == 0 {
			q.first++
		}
		if rank < 3 {
			q.third++
		}
		q.mrr += 1 / float64(rank+1) / float64(len(questions))
	}
	var ours, reference quality
	for _, q := range questions {
		hits := must.Get(m.Find(t.Context(), memory.Query{Text: q.text, Limit: 10}))(t)
		rank := slices.IndexFunc(hits, func(h memory.Hit) bool { return h.URI == "memory://user/"+q.answer })
		if rank != 0 {
			t.Logf("%q: rank %d, best %v", q.text, rank, hits[:min(1, len(hits))])
		}
		count(&ours, rank)

		scores := BM25(asciiWords(q.text), docs)
		own := scores[slices.Index(names, q.answer)]
		rank = 0
		for _, s := range scores {
			if s > own {
				rank++
			}
		}
		if own == 0 || rank >= 10 {
			rank = -1
		}
		count(&reference, rank)
	}
	t.Logf("%d questions: first %d, in three %d, mean reciprocal rank %.3f; reference %d, %d, %.3f",
		len(questions), ours.first, ours.third, ours.mrr, reference.first, reference.third, reference.mrr)
	if want := (quality{first: 33, third: 34, mrr: 0.93}); ours.first < want.first || ours.third < want.third || ours.mrr < want.mrr {
		t.Errorf("recall is %+v, was %+v", ours, want)
	}
	if ours.first <= reference.first || ours.third <= reference.third {
		t.Errorf("recall %+v is not better than the reference's %+v", ours, reference)
	}
}
