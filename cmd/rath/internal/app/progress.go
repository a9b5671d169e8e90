package app

import "time"

// progressEvery is how often progress is reported without a terminal: seldom enough
// that a log of it stays short, and often enough to show that the command works.
const progressEvery = 10 * time.Second

// noteEvery is how often the note of a terminal is drawn again.
const noteEvery = 100 * time.Millisecond

// Progress returns a function that reports the progress of a long command: on a
// terminal in a note, which "" removes, else in remarks, the first of them after
// progressEvery. The function is for one goroutine at a time.
func (a *App) Progress() func(text string) {
	last := time.Now()
	if a.Err.Terminal() {
		last = time.Time{}
	}
	return func(text string) {
		now := time.Now()
		switch {
		case a.flags.quiet:
		case a.Err.Terminal() && (text == "" || now.Sub(last) >= noteEvery):
			a.Err.Note(text)
			last = now
		case !a.Err.Terminal() && text != "" && now.Sub(last) >= progressEvery:
			a.Remark("%s", text)
			last = now
		}
	}
}
