package rules

import (
	_ "embed"
	"sync"
)

//go:embed default.yaml
var defaultList []byte

// Default returns the rules for a node whose operator asks for rules without a file.
var Default = sync.OnceValue(func() *List {
	l, err := Parse("the default rules", defaultList)
	if err != nil {
		panic(err) // the file is a part of the program
	}
	return l
})
