package mcp

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// The words with which a sentence asks for a secret. A question about a secret, or about a
// thing that has one, does not ask for it: "the zip is password-protected: open another
// one?".
var (
	// askingVerbs precede the secret, with at most a few words of its name in between.
	askingVerbs = strings.Fields(`enter re-enter reenter provide type retype give paste supply input send share submit specify tell insert
		confirm repeat write set choose pick create`)
	// needingVerbs ask only for the person's own: "it needs your password".
	needingVerbs = strings.Fields("need needs require requires")
	// otherSubjects, before a verb, have somebody else do it, or nobody.
	otherSubjects = strings.Fields("i we it they will ll should shall not t never cannot")
	// breaks end the name of a secret: "a reason to rotate the key" asks for the reason.
	breaks = strings.Fields("to for of about by with from without which whether if when where before after because how why that whose using via")
	// besideSecrets, after the secret, make it something else.
	besideSecrets = append(strings.Fields(`protected reset resets change changes field fields page form screen dialog holder owner based free scope scopes
		less expiration usage strength generator rules requirements settings`), aboutSecrets...)
	determiners = strings.Fields("your the a an my new current old please")
)

// maxSecretName is the maximum number of words between a verb and the secret: "your own
// GitHub personal access token".
const maxSecretName = 5

// textAsksForSecret reports whether a sentence of a text asks for a secret.
func textAsksForSecret(text string) bool {
	for sentence := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(".!?;:\n", r) }) {
		words, pin := wordsOf(sentence), namesPIN(sentence)
		for i := range words {
			if n := secretAt(words[i:], pin); n > 0 && sentenceAsks(words, i, n) {
				return true
			}
		}
	}
	return false
}

// secretAt returns the number of words of the secret's name at the beginning of words, zero
// if there is none.
func secretAt(words []string, pin bool) int {
	longest := 0
	for _, secret := range secretWords {
		if len(secret) > longest && len(secret) <= len(words) && slices.Equal(words[:len(secret)], secret) {
			longest = len(secret)
		}
	}
	if longest == 0 && (pin && words[0] == "pin" || hasSecretPart(words[:1])) {
		return 1
	}
	return longest
}

// sentenceAsks reports whether a sentence asks for the secret that its n words from i name.
func sentenceAsks(words []string, i, n int) bool {
	after := words[i+n:]
	if len(after) > 0 && slices.Contains(besideSecrets, after[0]) {
		return false
	}
	if needed := slices.DeleteFunc(slices.Clone(after[:min(2, len(after))]), func(w string) bool { return w == "is" || w == "are" }); len(needed) > 0 &&
		slices.Contains([]string{"required", "needed", "please"}, needed[0]) {
		return true
	}
	if !slices.ContainsFunc(words[:i], func(w string) bool { return !slices.Contains(determiners, w) }) && len(after) == 0 {
		return true // a label
	}
	for at := i - 1; at >= max(0, i-1-maxSecretName); at-- {
		w, before := words[at], ""
		if at > 0 {
			before = words[at-1]
		}
		switch {
		case slices.Contains(breaks, w):
			return false
		case slices.Contains(askingVerbs, w):
			return !slices.Contains(otherSubjects, before)
		case slices.Contains(needingVerbs, w):
			return slices.Contains(words[at:i], "your")
		case before == "what" && slices.Contains([]string{"is", "s", "are"}, w):
			return slices.Contains(words[at:i], "your") || at == i-1 || words[at+1] == "the"
		}
	}
	return false
}

// freeField returns the first field of a schema with a free text or number; "" if there is
// none: an answer from given values holds no secret.
func freeField(schema []byte) string {
	var s struct {
		Properties map[string]map[string]any `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		if items, ok := p["items"].(map[string]any); ok {
			p = items
		}
		if p["type"] != "boolean" && p["enum"] == nil && p["const"] == nil && p["oneOf"] == nil && p["anyOf"] == nil {
			return name
		}
	}
	return ""
}
