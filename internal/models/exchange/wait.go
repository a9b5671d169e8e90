package exchange

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The bounds of a wait until the announced reset of a limit. A limit may have capacity
// long before its reset, so the announcement is no demand.
const (
	minReset = time.Second
	maxReset = time.Minute
	// maxAsked bounds a wait that a server requests; a longer one is ignored.
	maxAsked = 1e6 * time.Second
)

// seconds returns a duration of n seconds, 0 if n is absurd.
func seconds(n float64) time.Duration {
	if n > 0 && n <= maxAsked.Seconds() {
		return time.Duration(n * float64(time.Second))
	}
	return 0
}

// retryAfter reads from headers the wait that a server requests.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get(name)), 64); err == nil && seconds(ms/1000) > 0 {
			return seconds(ms / 1000)
		}
	}
	for _, name := range []string{"Retry-After", "X-Retry-After", "X-Ratelimit-Reset-After"} {
		if d := span(h.Get(name), now); d > 0 {
			return d
		}
	}
	return 0
}

// resets are the headers with the reset time of a limit, and those with the rest of the
// limit until then.
var resets = []struct{ reset, left string }{
	{"X-Ratelimit-Reset-Requests", "X-Ratelimit-Remaining-Requests"},
	{"X-Ratelimit-Reset-Tokens", "X-Ratelimit-Remaining-Tokens"},
	{"Anthropic-Ratelimit-Requests-Reset", "Anthropic-Ratelimit-Requests-Remaining"},
	{"Anthropic-Ratelimit-Tokens-Reset", "Anthropic-Ratelimit-Tokens-Remaining"},
	{"Anthropic-Ratelimit-Input-Tokens-Reset", "Anthropic-Ratelimit-Input-Tokens-Remaining"},
	{"Anthropic-Ratelimit-Output-Tokens-Reset", "Anthropic-Ratelimit-Output-Tokens-Remaining"},
	{"X-Ratelimit-Reset", "X-Ratelimit-Remaining"},
	{"Ratelimit-Reset", "Ratelimit-Remaining"},
}

// reset returns the time until the exhausted limits are reset; 0 if no header has one.
// A limit without a stated rest counts as exhausted.
func reset(h http.Header, now time.Time) (longest time.Duration) {
	for _, r := range resets {
		left, err := strconv.ParseFloat(strings.TrimSpace(h.Get(r.left)), 64)
		if err == nil && left > 0 {
			continue
		}
		longest = max(longest, span(h.Get(r.reset), now))
	}
	if longest == 0 {
		return 0
	}
	return min(max(longest, minReset), maxReset)
}

// span reads a time in the forms of servers: seconds, a duration such as "1m6s" or
// "250ms", a date, or the seconds or milliseconds since 1970. It returns the time until
// then; 0 if it is past or in another form.
func span(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if n, err := strconv.ParseFloat(v, 64); err == nil {
		switch {
		case n > 1e11:
			return until(time.UnixMilli(int64(min(n, math.MaxInt32*1000))), now)
		case n > 1e9:
			return until(time.Unix(int64(n), 0), now)
		default:
			return seconds(n)
		}
	}
	if d := compound(strings.ToLower(v)); d > 0 {
		return d
	}
	for _, layout := range []string{http.TimeFormat, time.RFC3339Nano, time.RFC850, time.ANSIC} {
		if t, err := time.Parse(layout, v); err == nil {
			return until(t, now)
		}
	}
	return 0
}

func until(t, now time.Time) time.Duration {
	if d := t.Sub(now); d > 0 && d <= maxAsked {
		return d
	}
	return 0
}

const units = `milliseconds?|msecs?|ms|minutes?|mins?|m|hours?|hrs?|h|seconds?|secs?|s|days?|d|秒|分钟|小时`

var (
	part = regexp.MustCompile(`(\d+(?:\.\d+)?) ?(` + units + `)`)
	// wholeSpan matches a duration of parts.
	wholeSpan = regexp.MustCompile(`^(?:\d+(?:\.\d+)? ?(?:` + units + `)[ ,]*(?:and )?)+$`)
	// asked matches a server's request to wait in a text, in the plain form.
	asked = regexp.MustCompile(`(?:again|retry|retrying|retried|wait|resets?|available|delay|back ?off|cool ?down|please)\b(?: [a-z]+){0,4}?:? ?((?:\d+(?:\.\d+)? ?(?:` + units + `)(?:[ ,]+(?:and )?)?)+)`)
	// bare matches a number without a unit: seconds.
	bare = regexp.MustCompile(`retry ?after:? ?(\d+(?:\.\d+)?)(?:[ .,;]|$)`)
	late = regexp.MustCompile(`(\d+(?:\.\d+)?) ?(秒|分钟|小时)(?:钟)?(?:之)?后`)
)

// waitIn returns the wait that a text in the plain form requests; 0 if there is none.
func waitIn(text string) time.Duration {
	if m := asked.FindStringSubmatch(text); m != nil {
		return compound(m[1])
	}
	if m := late.FindStringSubmatch(text); m != nil {
		return compound(m[1] + m[2])
	}
	if m := bare.FindStringSubmatch(text); m != nil {
		n, _ := strconv.ParseFloat(m[1], 64)
		return seconds(n)
	}
	return 0
}

// compound reads a duration of parts, such as "1m6.5s" or "2 minutes and 5 seconds".
func compound(s string) time.Duration {
	if s = strings.TrimRight(s, " ,"); !wholeSpan.MatchString(s) {
		return 0
	}
	sum := 0.0
	for _, m := range part.FindAllStringSubmatch(s, -1) {
		n, _ := strconv.ParseFloat(m[1], 64)
		switch unit := m[2]; {
		case strings.HasPrefix(unit, "ms"), strings.HasPrefix(unit, "milli"):
			n /= 1000
		case unit == "m", strings.HasPrefix(unit, "min"), unit == "分钟":
			n *= 60
		case unit[0] == 'h', unit == "小时":
			n *= 3600
		case unit[0] == 'd':
			n *= 24 * 3600
		}
		sum += n
	}
	return seconds(sum)
}
