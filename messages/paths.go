package messages

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxPaths bounds the text of the paths that a task allows, in bytes.
const maxPaths = 8 << 10

// parsePaths normalizes paths that are separated by commas: each is slash separated,
// relative and clean, and they are sorted without duplicates.
func parsePaths(text string) (string, error) {
	if len(text) > maxPaths {
		return "", fmt.Errorf("paths of %d bytes: at most %d", len(text), maxPaths)
	}
	var all []string
	for p := range strings.SplitSeq(text, ",") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		clean := path.Clean(p)
		if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") || !utf8.ValidString(clean) ||
			strings.ContainsFunc(clean, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Errorf("%.80q is no path below the workspace", p)
		}
		all = append(all, clean)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ","), nil
}
