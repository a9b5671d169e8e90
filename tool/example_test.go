package tool_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/tool"
)

type cityArgs struct {
	City string `json:"city" jsonschema:"name of the city"`
	Days int    `json:"days,omitempty" jsonschema:"days to look ahead"`
}

type report struct {
	City    string `json:"city"`
	Celsius int    `json:"celsius"`
}

func ExampleFunc() {
	weather := tool.Func("weather", "Current weather of a city.",
		func(_ context.Context, in cityArgs) (report, error) {
			return report{in.City, 21}, nil
		}, &tool.FuncOptions{Effect: tool.ReadOnly})
	spec := weather.Spec()
	fmt.Println(spec.Name, spec.Effect)
	fmt.Println(string(spec.Schema))
	// Output:
	// weather read_only
	// {"type":"object","properties":{"city":{"type":"string","description":"name of the city"},"days":{"type":"integer","description":"days to look ahead"}},"required":["city"],"additionalProperties":false}
}

func ExampleTable_Call() {
	weather := tool.Func("weather", "Current weather of a city.",
		func(_ context.Context, in cityArgs) (report, error) {
			if in.City == "Atlantis" {
				return report{}, fmt.Errorf("no station in %s", in.City)
			}
			return report{in.City, 21}, nil
		}, &tool.FuncOptions{Effect: tool.ReadOnly})
	table, err := tool.NewTable(weather)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, args := range []string{`{"city":"Oslo"}`, `{"town":"Oslo"}`, `{"city":"Atlantis"}`} {
		out := table.Call(context.Background(), "weather", args, tool.Call{ID: "call-1", Attempt: 1})
		fmt.Println(string(out.Body))
	}
	// Output:
	// {"city":"Oslo","celsius":21}
	// {"ok":false,"error_kind":"invalid_tool_arguments","message":"the arguments do not match the schema: \"city\" is missing; \"town\" is not an argument (there are: city, days)","detail":"{\"town\":\"Oslo\"}"}
	// {"ok":false,"error_kind":"tool_execution_exception","message":"error: no station in Atlantis","detail":"error"}
}

// The call id stays the same when a call is made again, so the target can
// recognise it.
func ExampleCurrent() {
	charge := tool.Func("charge", "Charges the card.",
		func(ctx context.Context, in struct {
			Cents int `json:"cents"`
		},
		) (string, error) {
			c, _ := tool.Current(ctx)
			return fmt.Sprintf("charged %d under key %s", in.Cents, c.ID), nil
		}, &tool.FuncOptions{Effect: tool.Idempotent})
	table, err := tool.NewTable(charge)
	if err != nil {
		fmt.Println(err)
		return
	}
	for attempt := range 2 {
		out := table.Call(context.Background(), "charge", `{"cents":500}`, tool.Call{ID: "run-1/3", Attempt: uint64(attempt + 1)})
		fmt.Println(string(out.Body))
	}
	// Output:
	// "charged 500 under key run-1/3"
	// "charged 500 under key run-1/3"
}

func ExampleNewTable_conflict() {
	mine := tool.Func("run_code", "Runs code my way.",
		func(context.Context, struct{}) (string, error) { return "", nil }, nil)
	_, err := tool.NewTable(append(tool.Builtins(), mine)...)
	fmt.Println(errors.Is(err, tool.ErrNameConflict)) // the text says where both come from
	// Output:
	// true
}
