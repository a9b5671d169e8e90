package manifest

// Traced is a line of a text, and the change that brought it.
type Traced[T any] struct {
	Text string
	By   T
}

// Trace returns the lines of a text after one more change: existing lines keep their
// changes, and new ones get by. removed, unless it is nil, is called for each removed line.
func Trace[T any](lines []Traced[T], now []string, by T, removed func(Traced[T])) []Traced[T] {
	out := make([]Traced[T], 0, len(now))
	for _, e := range DiffLines(Texts(lines), now) {
		switch e.Op {
		case ' ':
			out = append(out, lines[e.OldFrom:e.OldTo]...)
		case '+':
			for _, text := range now[e.NewFrom:e.NewTo] {
				out = append(out, Traced[T]{text, by})
			}
		default:
			for i := e.OldFrom; i < e.OldTo && removed != nil; i++ {
				removed(lines[i])
			}
		}
	}
	return out
}

// Texts returns the texts of lines.
func Texts[T any](lines []Traced[T]) []string {
	out := make([]string, len(lines))
	for i := range lines {
		out[i] = lines[i].Text
	}
	return out
}
