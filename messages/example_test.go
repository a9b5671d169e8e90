package messages_test

import (
	"fmt"

	"github.com/rathcluster/rath/messages"
)

// A client publishes a task and knows its subjects before any node has answered.
func ExampleTask() {
	t := messages.Task{ID: "run-1", Input: []byte(`"why is the build red?"`), Budget: messages.Budget{Tokens: 20_000}}
	body, err := t.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(messages.TaskSubject("default", messages.UserAnonymous, "agent"), string(body))
	fmt.Println(messages.RunSubject("default", t.ID, messages.OnResult))
	// Output:
	// rath.task.default.anonymous.agent {"id":"run-1","input":"why is the build red?","budget":{"tokens":20000}}
	// rath.run.default.run-1.result
}

// Errors name the field and the remedy.
func ExampleDecodeTask() {
	_, err := messages.DecodeTask([]byte(`{"id":"run-1","budget":{"token":20000}}`))
	fmt.Println(err)
	// Output:
	// task: field budget."token": unknown: did you mean "tokens"? the known ones are micro_usd, steps, time_ms, tokens
}

// Check names the problem of a control request.
func ExampleControl_Check() {
	c, err := messages.DecodeControl([]byte(`{"decision":"again","by":"ann"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Check(messages.VerbResolve))
	// Output:
	// resolve: field reason: it is missing: give the source of this; it is kept as evidence
}

// The schemas are compiled in, for programs that validate elsewhere.
func ExampleSchemaOf() {
	text, err := messages.SchemaOf("task.v1")
	fmt.Println(len(text) > 0, err)
	// Output:
	// true <nil>
}

// The subject of a lineage record identifies its session, tree and kind.
func ExampleParseTailSubject() {
	fmt.Println("listen on", messages.TailSubject("default", "", messages.KindEnded, ""))
	k, root, kind, ok := messages.ParseTailSubject("rath.tail.default.s1.ended.s2")
	fmt.Println(k.ID, "of the tree of", root, "tells", kind, ok)
	// Output:
	// listen on rath.tail.default.*.ended.*
	// s2 of the tree of s1 tells ended true
}
