package conn

import (
	"context"
	"errors"
	"sync"
)

// Following runs read concurrently with take, which processes its output, and returns when
// both have ended.
func Following(ctx context.Context, read, take func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- read(ctx)
	}()
	err := take(ctx)
	cancel()
	if readErr := <-done; err == nil || errors.Is(err, context.Canceled) && !errors.Is(readErr, context.Canceled) {
		err = readErr
	}
	return err
}

// Together runs all functions until ctx ends or one fails, waits for all of
// them and returns the first error that is not the end of ctx.
func Together(ctx context.Context, fs ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
