package tool

import (
	"context"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// Limits of the list that Todo keeps.
const (
	MaxTodos = 50
	MaxTodo  = 500 // characters of one
)

type todoArgs struct {
	Todos []todoItem `json:"todos" jsonschema:"the whole list, in order; it takes the place of the one before"`
}

type todoItem struct {
	Content string `json:"content" jsonschema:"what is to be done"`
	Status  string `json:"status" jsonschema:"how far it is"`
}

type todoBody struct {
	Done int `json:"done"`
	Open int `json:"open"`
}

// todo returns a tool that changes no state: the list is the arguments of its newest call
// in the session, and in each fork.
func todo() Tool {
	return own(Todo,
		"Writes down what is to be done, for a task of several steps. Send the whole list with each change; at most one item is in_progress.",
		ReadOnly, func(p map[string]*jsonschema.Schema) {
			item := p["todos"].Items
			p["todos"].Types, p["todos"].Type = nil, "array"
			p["todos"].MaxItems = new(MaxTodos)
			item.Properties["content"].MinLength, item.Properties["content"].MaxLength = new(1), new(MaxTodo)
			item.Properties["status"].Enum = []any{"pending", "in_progress", "completed"}
		}, func(_ context.Context, _ Call, in todoArgs) (any, error) {
			var body todoBody
			under := 0
			for _, t := range in.Todos {
				switch t.Status {
				case "completed":
					body.Done++
					continue
				case "in_progress":
					under++
				}
				body.Open++
			}
			if under > 1 {
				return nil, &Failure{Kind: InvalidArguments, Message: fmt.Sprintf("%d items are in_progress: at most one may be, the others are pending or completed", under)}
			}
			return body, nil
		})
}
