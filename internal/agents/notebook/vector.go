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
	// MaxDimensions is the maximum number of dimensions of a vector.
	MaxDimensions = 4096
	// MaxVectors is the maximum size of all vectors of a memory, in bytes: those of 170,000
	// notes of 384 dimensions, or of 43,000 of 1,536. Further notes have no vector.
	MaxVectors = 256 << 20
)

// Vector is a model's embedding of a note's text. Vectors of different models or dimensions
// are not compared. The zero Vector means none.
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

// at returns the number that begins at byte i.
func (n Numbers) at(i int) float32 {
	return math.Float32frombits(uint32(n[i]) | uint32(n[i+1])<<8 | uint32(n[i+2])<<16 | uint32(n[i+3])<<24)
}

// NewVector normalises a model's answer to length 1.
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

// likeness returns the cosine of the angle between two vectors of the same dimensions. It
// uses four independent sums for speed; the conversions keep compilers from fusing
// operations.
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

// near returns the entries below dir whose vectors are most similar to v, at most limit. It
// compares all vectors exactly: 50,000 notes with 384 dimensions take some thirty
// milliseconds.
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

// fused is the number of matches of each kind that are fused, and fusion the constant of
// the method.
const (
	fused  = memory.MaxLimit
	fusion = 60
)

// fuse joins rankings by reciprocal rank: the score of a match is the sum of 1/(60+rank)
// over the rankings that contain it. Scores of words and vectors are not comparable, ranks
// are. See Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and
// individual Rank Learning Methods", SIGIR 2009, which also gives the constant.
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

// Known returns the stored vector of a note with the same text, or the zero Vector.
func (m *InMemory) Known(n Note) Vector {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e, ok := m.entries[n.URI]; ok && e.note.Text == n.Text {
		return e.note.Vector
	}
	return Vector{}
}

// Vectors returns the size of all vectors in bytes, and whether any is of a model.
func (m *InMemory) Vectors(model string) (bytes int, any bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.ix.vectors, m.ix.models[model] > 0
}

// Embedded returns the beginning of a text that is embedded. Models read a limited length,
// and a note's subject is at its beginning.
func Embedded(text string) string {
	return strings.TrimSpace(excerpt.Start(text, maxEmbedded))
}

const maxEmbedded = 8 << 10
