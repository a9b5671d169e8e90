package app

import (
	"bufio"
	"context"
	"os"
	"strings"

	"golang.org/x/term"
)

// Interactive reports whether a person sees the output and can answer it.
func (a *App) Interactive() bool {
	f, ok := a.In.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && a.Err.Terminal()
}

// Confirm asks a person a question; anything but y or yes is no, as is the end of the
// input.
func (a *App) Confirm(ctx context.Context, question string) (bool, error) {
	a.Err.Printf("%s [y/N] ", question)
	in, release, ends := Until(ctx, a.In)
	defer release()
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		if ctx.Err() != nil {
			break
		}
		return line == "y" || line == "yes", nil
	case <-ctx.Done():
		if ends { // otherwise it waits for a line that may never come: the process ends then
			<-answer
		}
	}
	a.Err.Println()
	return false, context.Cause(ctx)
}
