package openai_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/llm/scripted"
)

func Example() {
	// Any server that speaks the protocol will do; this one is scripted.
	model, err := scripted.New(scripted.Echo(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(model)
	defer srv.Close()

	models := openai.New(&llm.ServerOptions{Env: func(name string) string {
		return map[string]string{"OPENAI_BASE_URL": srv.URL + "/v1"}[name] // usually os.Getenv
	}})

	ctx := context.Background()
	provider := llm.Provider{Model: "gpt-5.5"}
	client, err := models.Client(ctx, provider)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Complete(ctx, &llm.Request{
		Provider: provider,
		Messages: []llm.Message{{Role: llm.User, Text: "good morning"}},
	}, func(d llm.Delta) { fmt.Printf("%q\n", d.Text) })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Text, resp.Usage.Tokens())
	// Output:
	// "echo: "
	// "good "
	// "morning"
	// echo: good morning 8
}

func ExampleNew() {
	models := openai.New(nil) // without configuration

	_, err := models.Client(context.Background(), llm.Provider{Model: "gpt-5.5"})
	fmt.Println(err)
	_, err = models.Client(context.Background(), llm.Provider{Model: "gpt-5.5", KeyRef: "TEAM_KEY"})
	fmt.Println(err)
	// Output:
	// llm: no_key: no key for api.openai.com; export OPENAI_API_KEY=..., or point OPENAI_BASE_URL at a server that needs none, such as http://localhost:11434/v1
	// llm: no_key: the key "TEAM_KEY" that the provider for api.openai.com refers to is neither configured nor in the environment; export TEAM_KEY=... where this process starts
}
