package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/node"
)

func (a *app) devCommand() *cobra.Command {
	var port int
	var model, script string
	var unsafe bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a node with a NATS server of its own over this directory",
		Long: `Runs a node with a NATS server on 127.0.0.1 over the store of this directory,
until it is interrupted. Programs in any language submit tasks there and need no
credentials; other rath commands of this directory find it by themselves.

Without a key of a model it repeats what it is told; --script answers from a
file. Runs that are under way when it stops go on at the next start.`,
		Example: `  rath dev
  rath dev --port 4333 --script model.txtar
  rath submit agent -m "say hello" --wait      in another terminal`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 1 || port > 65535 {
				return usage(cmd, errorf("--port %d: want a number from 1 to 65535", port))
			}
			o := &node.Options{Port: port, Model: model, Unsafe: unsafe}
			if script != "" {
				var err error
				if o.Models, err = a.scriptModels(script); err != nil {
					return err
				}
			}
			return a.dev(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&port, "port", 4222, "port of the NATS server")
	fs.StringVar(&model, "model", "", "default model")
	fs.StringVar(&script, "script", "", "answer model calls from this txtar file")
	fs.BoolVar(&unsafe, "unsafe", false, "let models run commands where nothing confines them")
	return cmd
}

func (a *app) dev(ctx context.Context, o *node.Options) error {
	s, err := a.host(ctx, o)
	if err != nil {
		return err
	}
	a.out.Printf("rath dev    %s   store %s   log %s\n", s.node.URL(), a.config.Store.Value, s.level)
	var names []string
	for _, w := range s.node.Workflows() {
		names = append(names, w.Name)
	}
	a.out.Printf("workflows   %s\n", strings.Join(names, ", "))
	a.out.Printf("try         %s\n", a.hint("submit", "agent", "-m", "hello", "--wait"))
	select {
	case <-ctx.Done():
		a.err.Println("stopping; what is under way goes on at the next start. Interrupt again to exit at once")
	case err = <-s.node.Failed():
	}
	return errors.Join(err, s.close())
}
