package notebook

import (
	"math"
)

// The parameters of BM25 in OpenRath.
const (
	k1 = 1.5
	b  = 0.75
)

// BM25 scores each document against the query; a term that occurs twice in the query counts
// twice. It is the reference for tests of stores; a store computes the same scores from an
// index.
func BM25(query []string, docs [][]string) []float64 {
	total := 0
	counts := make([]map[string]int, len(docs))
	for i, doc := range docs {
		total += len(doc)
		counts[i] = make(map[string]int, len(doc))
		for _, term := range doc {
			counts[i][term]++
		}
	}
	scores := make([]float64, len(docs))
	for _, term := range query {
		df := 0
		for _, c := range counts {
			if c[term] > 0 {
				df++
			}
		}
		w := idf(len(docs), df)
		for i, c := range counts {
			if tf := c[term]; tf > 0 {
				scores[i] += float64(w * saturate(tf, len(docs[i]), total, len(docs)))
			}
		}
	}
	return scores
}

// idf returns the weight of a term that df of n documents contain.
func idf(n, df int) float64 {
	return math.Log(1 + (float64(n-df)+0.5)/(float64(df)+0.5))
}

// saturate is the part of the score that grows with the term's count tf in a
// document of length terms; total terms are spread over n documents. The
// conversions keep compilers from fusing operations, which would make the last
// digit depend on the processor.
func saturate(tf, length, total, n int) float64 {
	f := float64(tf)
	norm := k1 * (float64(1-b) + float64(b*float64(length)*float64(n)/float64(total)))
	return f * (k1 + 1) / (f + float64(norm))
}
