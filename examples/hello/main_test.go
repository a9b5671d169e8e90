package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rathcluster/rath/llm/scripted"
)

func Example() {
	echo, err := scripted.New(nil, nil)
	if err == nil {
		err = hello(context.Background(), os.Stdout, echo)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// user       Say hello.
	// assistant  echo: Say hello.
	// user       And in French?
	// assistant  echo: And in French?
	// 2 chunks before, 4 now, 2 model calls
}
