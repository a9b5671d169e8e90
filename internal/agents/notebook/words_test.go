package notebook

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func analysed(text string, query bool) string {
	var terms []string
	scan(text, query, func(term string, _, _ int) { terms = append(terms, term) })
	return strings.Join(terms, " ")
}

func TestWords(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text, note, query string // query "" = as note
	}{
		{"stop words and inflections", "The user's preferences were stored; notes are stopping", "user preferenc store note stop", ""},
		{"accents", "Café naïve ÅNGSTRÖM Straße Łódź", "cafe naiv angstrom strass lodz", ""},
		{"decomposed accents", "Cafe\u0301", "cafe", ""},
		{"Greek", "ΣΟΦΟΣ σοφός", "σοφοσ σοφοσ", ""},
		{"Cyrillic keeps its letters but ё", "Чай ЁЛКА", "чай елка", ""},
		{"Chinese", "深色主题", "深 色 深色 主 色主 题 主题", "深色 色主 主题"},
		{"one Chinese character", "茶", "茶", "茶"},
		{"mixed", "用Go写", "用 go 写", ""},
		{"Japanese", "コーヒー", "コ ー コー ヒ ーヒ ー ヒー", "コー ーヒ ヒー"},
		{"half width", "ｺｰﾋｰ", "コ ー コー ヒ ーヒ ー ヒー", "コー ーヒ ヒー"},
		{"full width", "ＡＢＣ１２", "abc12", ""},
		{"Korean", "커피", "커 피 커피", "커피"},
		{"Thai", "กาแฟ", "ก า กา แ าแ ฟ แฟ", "กา าแ แฟ"},
		{"Hindi keeps its vowel signs", "हिन्दी", "हिन्दी", ""},
		{"Arabic", "قهوة", "قهوة", ""},
		{"identifiers", "max_tool_rounds FanOut jetStream2", "max tool round fanout fan jetstream2 jet stream2", ""},
		{"numbers", "2024-05-01 v1.2 ½", "2024 05 01 v1 2 12", ""},
		{"soft hyphen", "co\u00adoperate", "cooperat", ""},
		{"data is no word", strings.Repeat("A1", 60), "", ""},
		{"nothing", " \t…!", "", ""},
		{"only stop words", "what is it", "", ""},
		{"invalid bytes", "a\xffcoffee", "coffe", ""},
	}
	for _, tt := range tests {
		if got := analysed(tt.text, false); got != tt.note {
			t.Errorf("%s: note %q gives %q, want %q", tt.name, tt.text, got, tt.note)
		}
		query := tt.query
		if query == "" {
			query = tt.note
		}
		if got := analysed(tt.text, true); got != query {
			t.Errorf("%s: query %q gives %q, want %q", tt.name, tt.text, got, query)
		}
	}
}

// TestStem takes its pairs from the steps 1 and 5a of Porter's paper, except for words in
// -us and -is, which keep their s.
func TestStem(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"caresses": "caress", "ponies": "poni", "ties": "ti", "cats": "cat", "caress": "caress",
		"feed": "feed", "agreed": "agre", "plastered": "plaster", "bled": "bled", "motoring": "motor", "sing": "sing",
		"conflated": "conflat", "troubled": "troubl", "sized": "size", "hopping": "hop", "tanned": "tan",
		"falling": "fall", "hissing": "hiss", "fizzed": "fizz", "failing": "fail", "filing": "file",
		"happy": "happi", "sky": "sky", "status": "status", "analysis": "analysis", "rate": "rate", "cease": "ceas", "controlle": "controll",
		"use": "us", "used": "us", "using": "us", "it": "it", "s3s": "s3s",
	}
	got := make(map[string]string)
	for word := range tests {
		got[word] = stem(word)
	}
	if diff := cmp.Diff(tests, got); diff != "" {
		t.Errorf("stems (-want +got):\n%s", diff)
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range []string{"", "The café", "深色x主题", "ｶﾞ", "\u0301a\u200d", "aB\xff", "กำ½"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		note := make(map[string]bool)
		last := 0
		scan(s, false, func(term string, start, end int) {
			if term == "" || start < 0 || end < start || end > len(s) {
				t.Errorf("term %q at %d:%d of %d bytes", term, start, end, len(s))
			}
			if utf8.ValidString(s) && !utf8.ValidString(term) {
				t.Errorf("term %q is not UTF-8", term)
			}
			last = max(last, start)
			note[term] = true
		})
		scan(s, true, func(term string, _, _ int) {
			if !note[term] {
				t.Errorf("query term %q of %q is no term of the same note", term, s)
			}
		})
		if n := utf8.RuneCountInString(snippet(s, []term{{text: "a", idf: 1}})); n > maxSnippet+2 {
			t.Errorf("snippet of %d characters", n)
		}
	})
}
