package pages_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// longBar bounds the time of the first page of a session with 10,000 rows, as a multiple of
// that with 100.
const longBar = 1.5

// BenchmarkLongSession compares the first page of a long session with that of a short one,
// in turn. It fails if the bar is missed.
func BenchmarkLongSession(b *testing.B) {
	w := begin(b)
	var paths []string
	for name, runs := range map[string]int{"long": 100, "short": 1} {
		for i := range runs {
			w.submit("rows", messages.Task{ID: run.ID(fmt.Sprint(name, i)), Session: name}, "99 rows", run.Succeeded)
		}
	}
	for _, name := range []string{"long", "short"} {
		paths = append(paths, w.server.URL+"/t/default/sessions/"+name)
	}
	var ratios []float64
	for b.Loop() {
		for range 41 {
			var took []time.Duration
			for _, path := range paths {
				began := time.Now()
				res := must.Get(http.Get(path))(b)
				must.Get(io.Copy(io.Discard, res.Body))(b)
				must.Do(b, res.Body.Close())
				if res.StatusCode != http.StatusOK {
					b.Fatalf("%s: %s", path, res.Status)
				}
				took = append(took, time.Since(began))
			}
			ratios = append(ratios, float64(took[0])/float64(took[1]))
		}
	}
	slices.Sort(ratios)
	have := ratios[len(ratios)/2]
	b.ReportMetric(have, "x")
	if have > longBar {
		b.Errorf("the first page of a session of 10,000 rows takes %.2f times as long as that of 100, bar %.1f (ratios %.2f)", have, longBar, ratios)
	}
}

// questionsBar bounds the time of the page of questions with 100 equal ones.
const questionsBar = 300 * time.Millisecond

// BenchmarkQuestions measures the page of 100 questions for the same call. It fails if the
// bar is missed.
func BenchmarkQuestions(b *testing.B) {
	w := begin(b)
	head := w.files()
	for i := range 100 {
		w.submit("deploy", messages.Task{ID: run.ID(fmt.Sprint("deploy-", i)), Workspace: head}, "Roll out slug 1.4.2.", run.Waiting)
	}
	var all []time.Duration
	for b.Loop() {
		for range 11 {
			began := time.Now()
			w.get("/t/default/questions", http.StatusOK)
			all = append(all, time.Since(began))
		}
	}
	slices.Sort(all)
	b.ReportMetric(all[len(all)/2].Seconds()*1000, "ms/page")
	if have := all[len(all)/2]; have > questionsBar {
		b.Errorf("the page of 100 questions takes %v, bar %v", have, questionsBar)
	}
}
