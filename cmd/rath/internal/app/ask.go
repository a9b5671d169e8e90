package app

import (
	"bufio"
	"context"
	"os"
	"strings"

	"golang.org/x/term"
)

// Interactive reports whether a person sees what is written and can answer it.
func (a *App) Interactive() bool {
	f, ok := a.In.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && a.Err.Terminal()
}

// Confirm asks a person a question; anything but y or yes is no, as is the end of the
// input.
func (a *App) Confirm(ctx context.Context, question string) (bool, error) {
	a.Err.Printf("%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // it waits for a line that may never come: the process ends then
		line, _ := bufio.NewReader(a.In).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		return line == "y" || line == "yes", nil
	case <-ctx.Done():
		a.Err.Println()
		return false, context.Cause(ctx)
	}
}
