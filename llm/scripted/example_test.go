package scripted_test

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/session"
)

func ExampleParse() {
	script, err := scripted.Parse("weather.txtar", []byte(`
-- ask --
user: weather
not result: get_weather
call: get_weather {"city": "Oslo"}

-- tell --
result: get_weather

Take an umbrella.
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := script.Format()
	fmt.Printf("%s%v\n", text, err)

	_, err = scripted.Parse("wrong.txtar", []byte("-- a --\nturn: first\n\nHello.\n"))
	fmt.Println(err)
	// Output:
	// -- ask --
	// user: weather
	// not result: get_weather
	// call: get_weather {"city": "Oslo"}
	// text: ""
	//
	// -- tell --
	// result: get_weather
	//
	// Take an umbrella.
	// <nil>
	// script wrong.txtar:2: rule a: turn: "first": want a number from 1 on
}

func ExampleModel_Complete() {
	model, err := scripted.New(scripted.Echo(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := model.Complete(context.Background(), &llm.Request{
		Messages: []llm.Message{{Role: llm.User, Text: "good morning"}},
	}, func(d llm.Delta) { fmt.Printf("%q\n", d.Text) })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Text, resp.Finish)
	// Output:
	// "echo: "
	// "good "
	// "morning"
	// echo: good morning stop
}

func ExampleScript_Format() {
	request := &llm.Request{Messages: []llm.Message{{Role: llm.System, Text: "You are a poet."}, {Role: llm.User, Text: "Rain?"}}}
	answer := &llm.Response{Text: "It falls.", Finish: llm.FinishStop, Usage: session.Usage{Input: 9, Output: 3}}

	script := &scripted.Script{Comment: "From a recorded run."}
	script.Record("rain", request, answer)
	data, err := script.Format()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(string(data))
	// Output:
	// From a recorded run.
	//
	// -- rain --
	// system: You are a poet.
	// turn: 1
	// last: Rain?
	// finish: stop
	// usage: input=9 output=3
	//
	// It falls.
}
