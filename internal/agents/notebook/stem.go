package notebook

import "bytes"

// stem removes the inflections of an English word in lower case: plural, past, progressive
// and final e, by the rules 1 and 5a of Porter's algorithm. It keeps derivations
// ("preference" is not "prefer"), which costs recall but joins no unrelated words. The
// result need not be a word.
func stem(word string) string {
	if len(word) < 3 || !plain(word) {
		return word
	}
	w := []byte(word)
	w = stemPlural(w)
	w = stemPast(w)
	if n := len(w) - 1; w[n] == 'y' && hasVowel(w[:n]) {
		w[n] = 'i'
	}
	if n := len(w) - 1; w[n] == 'e' {
		if m := measure(w[:n]); m > 1 || m == 1 && !shortSyllable(w[:n]) {
			w = w[:n]
		}
	}
	if string(w) == word {
		return word // nothing was removed
	}
	return string(w)
}

// plain reports whether a word is ASCII letters only.
func plain(word string) bool {
	for i := range len(word) {
		if word[i] < 'a' || word[i] > 'z' {
			return false
		}
	}
	return true
}

func stemPlural(w []byte) []byte {
	switch {
	case bytes.HasSuffix(w, []byte("sses")), bytes.HasSuffix(w, []byte("ies")):
		return w[:len(w)-2]
	case bytes.HasSuffix(w, []byte("ss")), bytes.HasSuffix(w, []byte("us")), bytes.HasSuffix(w, []byte("is")):
		return w
	case w[len(w)-1] == 's':
		return w[:len(w)-1]
	}
	return w
}

func stemPast(w []byte) []byte {
	if root, ok := bytes.CutSuffix(w, []byte("eed")); ok {
		if measure(root) > 0 {
			return w[:len(w)-1]
		}
		return w
	}
	root, ok := bytes.CutSuffix(w, []byte("ed"))
	if !ok {
		root, ok = bytes.CutSuffix(w, []byte("ing"))
	}
	if !ok || !hasVowel(root) {
		return w
	}
	n := len(root)
	switch {
	case bytes.HasSuffix(root, []byte("at")), bytes.HasSuffix(root, []byte("bl")), bytes.HasSuffix(root, []byte("iz")):
		return append(root, 'e')
	case n > 1 && root[n-1] == root[n-2] && consonant(root, n-1) && root[n-1] != 'l' && root[n-1] != 's' && root[n-1] != 'z':
		return root[:n-1]
	case measure(root) == 1 && shortSyllable(root):
		return append(root, 'e')
	}
	return root
}

// consonant reports whether w[i] is a consonant. The letter y is a consonant at the start
// and after a vowel.
func consonant(w []byte, i int) bool {
	switch w[i] {
	case 'a', 'e', 'i', 'o', 'u':
		return false
	case 'y':
		return i == 0 || !consonant(w, i-1)
	}
	return true
}

func hasVowel(w []byte) bool {
	for i := range w {
		if !consonant(w, i) {
			return true
		}
	}
	return false
}

// measure counts the changes from vowels to consonants.
func measure(w []byte) int {
	m, vowel := 0, false
	for i := range w {
		c := consonant(w, i)
		if c && vowel {
			m++
		}
		vowel = !c
	}
	return m
}

// shortSyllable reports whether w ends consonant, vowel, consonant, the last
// not w, x or y: such a stem gets its e back ("hop", "hoping").
func shortSyllable(w []byte) bool {
	n := len(w)
	if n < 3 || !consonant(w, n-3) || consonant(w, n-2) || !consonant(w, n-1) {
		return false
	}
	return w[n-1] != 'w' && w[n-1] != 'x' && w[n-1] != 'y'
}
