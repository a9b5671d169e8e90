package cluster

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"time"
)

// repeatLog is how long an identical line of the library is not logged again: a
// rejected node causes one with every packet.
const repeatLog = time.Minute

// libraryLog takes the library's lines, "[LEVEL] memberlist: text from=address", and
// logs them at a level of ours: its errors are mostly other nodes' troubles. log.Logger
// serializes the calls.
type libraryLog struct {
	to   *slog.Logger
	last map[string]time.Time
}

func newLibraryLog(to *slog.Logger) *log.Logger {
	return log.New(&libraryLog{to: to, last: map[string]time.Time{}}, "", 0)
}

func (l *libraryLog) Write(line []byte) (int, error) {
	level, text := slog.LevelDebug, strings.TrimSpace(string(line))
	for prefix, lv := range map[string]slog.Level{
		"[DEBUG] ": slog.LevelDebug, "[INFO] ": slog.LevelDebug, "[WARN] ": slog.LevelInfo, "[ERR] ": slog.LevelInfo, "[ERROR] ": slog.LevelInfo,
	} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			level, text = lv, rest
		}
	}
	text = strings.TrimPrefix(text, "memberlist: ")
	var from []any
	if before, addr, ok := strings.Cut(text, " from="); ok {
		text, from = strings.TrimRight(before, ":"), []any{"from", addr}
	}
	if what, ok := explain(text); ok {
		level, text = slog.LevelWarn, what
	}
	if !l.to.Enabled(context.Background(), level) {
		return len(line), nil
	}
	key := text
	if level == slog.LevelWarn && len(from) > 0 {
		host, _, _ := strings.Cut(from[1].(string), ":")
		key += host // each rejected node is named once
	}
	now := time.Now()
	if level > slog.LevelDebug {
		if at, ok := l.last[key]; ok && now.Sub(at) < repeatLog {
			return len(line), nil
		}
		if len(l.last) >= 256 {
			clear(l.last)
		}
		l.last[key] = now
	}
	l.to.Log(context.Background(), level, "cluster: "+text, from...)
	return len(line), nil
}

const (
	keyDiffers   = "the cluster key differs"
	labelDiffers = "the cluster label differs"
)

// explain returns, in our words, why another node was rejected, if a line of the
// library or an error of a join means that. The library's errors are texts, not values;
// the tests of rejections fail when it words them differently.
func explain(text string) (string, bool) {
	switch {
	case strings.Contains(text, "could decrypt"), strings.Contains(text, "Decrypt packet failed"),
		strings.Contains(text, "encryption is not configured"), strings.Contains(text, "is not encrypted"):
		return "refused a node: " + keyDiffers + " or the message was damaged", true
	case strings.Contains(text, "unacceptable label"):
		return "refused a node: " + labelDiffers, true
	case strings.Contains(text, protocolDiffers):
		return "refused a node: " + text[strings.Index(text, protocolDiffers):], true
	case strings.Contains(text, "is no node of Rath"):
		return "refused a node: " + text, true
	}
	return "", false
}
