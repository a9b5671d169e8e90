package models

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/rathcluster/rath/internal/models/listfile"
)

//go:embed public.yaml
var publicFile []byte

// PublicPrice is a price that a provider published.
type PublicPrice struct {
	ID string
	Prices
}

var publicPrices = sync.OnceValues(func() ([]PublicPrice, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(publicFile, &doc); err != nil {
		return nil, fmt.Errorf("models: public prices: %w", err)
	}
	p := &parser{&listfile.Parser{File: "public.yaml"}}
	var all []PublicPrice
	p.Each(doc.Content[0], "prices", func(key, value *yaml.Node) {
		all = append(all, PublicPrice{key.Value, *p.own(value, key.Value, strings.Contains(key.Value, "embedding"))})
	})
	return all, p.Err()
})

// PublicPrices returns the table of published prices. Each price has a date. A list
// uses one of them by "prices: public", after its author has checked it.
func PublicPrices() ([]PublicPrice, error) {
	all, err := publicPrices()
	return slices.Clone(all), err
}

// Public returns the published prices of a model.
func Public(id string) (*Prices, error) {
	all, err := publicPrices()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, one := range all {
		if one.ID == id {
			return &one.Prices, nil
		}
		ids = append(ids, one.ID)
	}
	return nil, fmt.Errorf("no public price of %q is known (%s); write date, input and output", id, strings.Join(ids, ", "))
}
