package notebook

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/memory"
)

// Limits of vectors.
const (
	// MaxDimensions is how many numbers a vector has at most.
	MaxDimensions = 4096
	// MaxVectors bounds the bytes of all vectors of a memory: those of 170,000 notes of
	// 384 dimensions, or of 43,000 of 1,536. Notes beyond have none.
	MaxVectors = 256 << 20
)

// Vector is what a model made of the text of a note. Those of different models, or of
// different dimensions, are not compared. The zero Vector is none.
type Vector struct {
	Model   string  `json:"model"`
	Numbers Numbers `json:"numbers"`
}

// Numbers are the coordinates of a vector of length 1, each a float32 in four bytes,
// little endian. As text they are base64.
type Numbers string

// MarshalText implements encoding.TextMarshaler.
func (n Numbers) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(n)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Numbers) UnmarshalText(text []byte) error {
	data, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return err
	}
	*n = Numbers(data)
	return n.check()
}

func (n Numbers) check() error {
	if len(n) == 0 || len(n)%4 != 0 || len(n)/4 > MaxDimensions {
		return fmt.Errorf("a vector of %d bytes, want four for each of 1 to %d dimensions", len(n), MaxDimensions)
	}
	for i := 0; i < len(n); i += 4 {
		if f := float64(n.at(i)); math.IsNaN(f) || math.Abs(f) > 1.01 {
			return fmt.Errorf("a vector with the number %v, want its length to be 1", f)
		}
	}
	return nil
}

// at is the number that begins at a byte.
func (n Numbers) at(i int) float32 {
	return math.Float32frombits(uint32(n[i]) | uint32(n[i+1])<<8 | uint32(n[i+2])<<16 | uint32(n[i+3])<<24)
}

// NewVector brings what a model answered to length 1.
func NewVector(model string, of []float32) (Vector, error) {
	if model == "" || len(of) == 0 || len(of) > MaxDimensions {
		return Vector{}, fmt.Errorf("notebook: a vector of %d dimensions, want 1 to %d", len(of), MaxDimensions)
	}
	sum := 0.0
	for _, f := range of {
		sum += float64(f) * float64(f)
	}
	if length := math.Sqrt(sum); length > 0 && !math.IsInf(length, 1) { // NaN is not above 0
		data := make([]byte, 0, 4*len(of))
		for _, f := range of {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(float64(f)/length)))
		}
		return Vector{model, Numbers(data)}, nil
	}
	return Vector{}, errors.New("notebook: a vector without a direction")
}

// likeness is the cosine of the angle between two vectors of the same dimensions. Four
// sums run beside each other; the conversions keep compilers from fusing operations.
func likeness(a []float32, b Numbers) float32 {
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 16 {
		s0 += float32(a[0] * b[:4].at(0))
		s1 += float32(a[1] * b[4:8].at(0))
		s2 += float32(a[2] * b[8:12].at(0))
		s3 += float32(a[3] * b[12:16].at(0))
		a, b = a[4:], b[16:]
	}
	for i, f := range a {
		s0 += float32(f * b.at(4*i))
	}
	return float32(s0+s1) + float32(s2+s3)
}

// near returns the entries below dir whose vectors are the most like v, at most limit. All
// vectors are compared: of 50,000 notes with 384 dimensions that is some thirty milliseconds of work,
// and no approximation of it forgets a neighbour.
func (ix *index) near(v Vector, dir URI, limit int) []match {
	wanted := make([]float32, len(v.Numbers)/4)
	for i := range wanted {
		wanted[i] = v.Numbers.at(4 * i)
	}
	best := make([]match, 0, limit+1)
	for _, e := range ix.slots {
		if e == nil || e.note.Vector.Model != v.Model || len(e.note.Vector.Numbers) != len(v.Numbers) {
			continue
		}
		score := int64(math.Round(float64(likeness(wanted, e.note.Vector.Numbers)) * 1e6))
		if m := (match{e, score}); score > 0 && (len(best) < limit || better(m, best[limit-1]) < 0) && below(e.note.URI, dir) {
			best = insert(best, m, limit)
		}
	}
	return best
}

// fused is how many matches of each kind are fused, and fusion the constant of the method.
const (
	fused  = memory.MaxLimit
	fusion = 60
)

// fuse joins two rankings by reciprocal rank: the score of a match is the sum of
// 1/(60+rank) over the rankings that it is in. Cormack, Clarke and Büttcher, "Reciprocal
// Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009,
// which also has the constant. Scores of words and of vectors cannot be compared, ranks can.
func fuse(limit int, rankings ...[]match) []match {
	var all []match
	at := map[*entry]int{}
	for _, ranking := range rankings {
		for rank, m := range ranking {
			i, ok := at[m.entry]
			if !ok {
				i = len(all)
				at[m.entry], all = i, append(all, match{m.entry, 0})
			}
			all[i].score += int64(math.Round(1e6 / float64(fusion+1+rank)))
		}
	}
	slices.SortFunc(all, better)
	return all[:min(len(all), limit)]
}

// FindNear is Find, by the words of the query and by its vector, fused by rank.
func (m *InMemory) FindNear(ctx context.Context, q memory.Query, v Vector) ([]memory.Hit, error) {
	return m.find(ctx, q, func(terms []term, dir URI, limit int) []match {
		return fuse(limit, m.ix.find(terms, dir, fused), m.ix.near(v, dir, fused))
	})
}

// Known returns the vector that is kept for a note of the same text; the zero Vector is
// none.
func (m *InMemory) Known(n Note) Vector {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e, ok := m.entries[n.URI]; ok && e.note.Text == n.Text {
		return e.note.Vector
	}
	return Vector{}
}

// Vectors returns how many bytes the vectors of all notes take, and whether any is of a
// model.
func (m *InMemory) Vectors(model string) (bytes int, any bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.ix.vectors, m.ix.models[model] > 0
}

// Embedded is as much of a text as its vector is made of, which is what models take:
// they read so much, and what a note is about stands at its beginning.
func Embedded(text string) string {
	return strings.TrimSpace(excerpt.Start(text, maxEmbedded))
}

const maxEmbedded = 8 << 10
