package toolserver_test

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/client/toolserver"
	"github.com/rathcluster/rath/tool"
)

// A program that serves a tool until it is interrupted.
func ExampleServe() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := client.Connect(ctx, "", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	type place struct {
		City string `json:"city"`
	}
	weather := func(_ context.Context, p place) (string, error) { return "sunny in " + p.City, nil }
	t := tool.Func("weather", "Current weather of a city.", weather, &tool.FuncOptions{Effect: tool.ReadOnly})
	if err := toolserver.Serve(ctx, c, t, 0); err != nil {
		log.Print(err)
	}
}
