// Package tokens counts the tokens of requests that no server has counted: calls that
// were cut off, calls to servers that report no usage, and a first request that may be
// too long.
//
// It counts by o200k_base, the vocabulary of OpenAI's models since 2024. For other
// models the count is corrected by the server's count of an earlier request; a server's
// own count is always better than either.
//
// The vocabulary takes about 5 MB of the program. The first count takes 20 ms and 7 MB
// of memory.
package tokens

import (
	"math"
	"slices"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/llm"
)

var vocabulary = sync.OnceValue(codec.NewO200kBase)

// anImage is the approximate token count of an image, large or small.
const anImage = 1536

const (
	// maxCounted is the number of bytes that are counted, of all texts in proportion.
	// The time for a very long word grows faster than its length.
	maxCounted = 64 << 10
	// maxSample is the maximum size of a request that is kept to compare counts, and
	// maxModels the number of models with such a request.
	maxSample = 32 << 10
	maxModels = 64
	// aroundMessage is the protocol's overhead for a message or a call.
	aroundMessage = 4
)

// Count returns the number of tokens of texts, estimated from a sample of them.
func Count(texts ...string) int64 {
	all, seen, n := 0, 0, 0
	for _, t := range texts {
		all += len(t)
	}
	for _, t := range texts {
		if all > maxCounted {
			t = excerpt.Clip(t, int(int64(len(t))*maxCounted/int64(all)))
		}
		seen += len(t)
		n += count(t)
	}
	if seen == 0 {
		return llm.Estimate(all)
	}
	return int64(float64(n) / float64(seen) * float64(all))
}

func count(text string) int {
	if text == "" {
		return 0
	}
	n, err := vocabulary().Count(text)
	if err != nil {
		return int(llm.Estimate(len(text)))
	}
	return n
}

// request counts the contents of a request.
func request(r *llm.Request) int64 {
	var texts []string
	around, images := len(r.Messages), 0
	for i := range r.Tools {
		t := &r.Tools[i]
		texts = append(texts, t.Name, t.Description, t.Schema)
		around++
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		texts = append(texts, m.Text)
		images += len(m.Images)
		for _, c := range m.Calls {
			texts = append(texts, c.Name, c.Args)
			around++
		}
	}
	return Count(texts...) + int64(around)*aroundMessage + int64(images)*anImage
}

// Model identifies a model: kind, server and name.
type Model [3]string

// Of returns the model of a provider.
func Of(p *llm.Provider) Model { return Model{p.Kind, p.BaseURL, p.Model} }

// Counter counts for the models of a process. The zero Counter is ready, and safe for
// concurrent use.
type Counter struct {
	mu      sync.Mutex
	samples map[Model]*sample
}

// sample is a request that its server counted.
type sample struct {
	once  sync.Once
	r     *llm.Request // until it is counted here
	input int64        // by the server
	ratio float64
}

// Stated records that a server counted input tokens in r, which has size bytes and must
// not change afterwards. A small request is kept until the next one. A request with
// images is not kept, because their bytes are not counted and servers count them
// differently.
func (c *Counter) Stated(r *llm.Request, size int, input int64) {
	shows := func(m llm.Message) bool { return len(m.Images) > 0 }
	if size > maxSample || input <= 0 || slices.ContainsFunc(r.Messages, shows) {
		return
	}
	m := Of(&r.Provider)
	kept := &llm.Request{Messages: r.Messages, Tools: r.Tools}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.samples[m] == nil && len(c.samples) >= maxModels {
		return
	}
	if c.samples == nil {
		c.samples = map[Model]*sample{}
	}
	c.samples[m] = &sample{r: kept, input: input}
}

// The bounds of a correction: beyond them a server counts more than the texts.
const (
	least = 0.5
	most  = 3.0
)

// correction is the number of the server's tokens per counted token of the model.
func (c *Counter) correction(m Model) float64 {
	c.mu.Lock()
	s := c.samples[m]
	c.mu.Unlock()
	if s == nil {
		return 1
	}
	s.once.Do(func() {
		s.ratio = min(max(float64(s.input)/float64(max(request(s.r), 1)), least), most)
		s.r = nil
	})
	return s.ratio
}

// Request returns the number of tokens of r for its model.
func (c *Counter) Request(r *llm.Request) int64 {
	return int64(math.Round(float64(request(r)) * c.correction(Of(&r.Provider))))
}

// Texts returns the number of tokens of texts for a model.
func (c *Counter) Texts(m Model, texts ...string) int64 {
	return int64(math.Round(float64(Count(texts...)) * c.correction(m)))
}
