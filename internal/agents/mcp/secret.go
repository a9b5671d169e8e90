package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// The words that name secrets, in names, titles and descriptions of fields. Answers to
// questions are recorded in plain text, so no server may ask for one.
var secretWords = phrases(`password, passwd, pwd, passphrase, pass phrase, passcode, pass code, pass word, secret,
	secrets, token, jwt, credential, credentials, api key, apikey, access key, private key,
	secret key, signing key, encryption key, ssh key, auth key, cvv, cvc, csc, security code,
	card number, credit card, otp, totp, one time code, verification code, recovery code,
	backup code, mfa code, pin code, pin number, seed phrase, mnemonic`)

// secretNames are words that mean a secret only as a name: in a sentence they have other
// meanings, too.
var secretNames = phrases("pin, pass")

// phrases splits a list at commas and returns the words of each phrase.
func phrases(list string) (all [][]string) {
	for phrase := range strings.SplitSeq(list, ",") {
		all = append(all, strings.Fields(phrase))
	}
	return all
}

// secretParts are parts of names that are written as one word.
var secretParts = []string{
	"password", "passwd", "passphrase", "passcode", "apikey", "accesskey", "privatekey", "secretkey", "accesstoken", "authtoken", "refreshtoken", "bearertoken", "clientsecret", "credential",
}

// aboutSecrets are words next to a secret's name in fields about the secret: its name, its
// kind.
var aboutSecrets = []string{
	"name", "id", "identifier", "count", "limit", "length", "size", "type", "kind", "policy", "path", "file", "url", "expiry", "ttl", "number", "budget", "rotation", "manager", "store", "hint", "provider", "version", "public",
}

// secretField returns the field of a schema that asks for a secret, and the reason; "" if
// none does.
func secretField(schema []byte) (field, why string) {
	var v any
	if json.Unmarshal(schema, &v) != nil {
		return "", ""
	}
	return secretIn("the answer", "", v)
}

// secretIn searches a schema and its subschemas. name is the name of the schema's field.
func secretIn(field, name string, v any) (string, string) {
	s, ok := v.(map[string]any)
	if !ok {
		all, _ := v.([]any)
		for _, one := range all {
			if field, why := secretIn(field, name, one); why != "" {
				return field, why
			}
		}
		return "", ""
	}
	if why := asksForSecret(name, s); why != "" {
		return field, why
	}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		switch key {
		case "properties", "patternProperties", "$defs", "definitions":
			fields, _ := s[key].(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				if field, why := secretIn(name, name, fields[name]); why != "" {
					return field, why
				}
			}
		case "items", "prefixItems", "allOf", "anyOf", "oneOf", "additionalProperties", "then", "else":
			if field, why := secretIn(field, name, s[key]); why != "" {
				return field, why
			}
		}
	}
	return "", ""
}

// asksForSecret returns why a field counts as a secret, or "". A field with an enumeration
// or a boolean does not.
func asksForSecret(name string, s map[string]any) string {
	format, _ := s["format"].(string)
	writeOnly, _ := s["writeOnly"].(bool)
	switch {
	case strings.EqualFold(format, "password"):
		return `its format is "password"`
	case writeOnly:
		return "it is writeOnly"
	case s["type"] == "boolean" || s["enum"] != nil || s["const"] != nil || s["oneOf"] != nil:
		return ""
	}
	words := wordsOf(name)
	numbers := s["type"] == "integer" || s["type"] == "number"
	if namesSecret(words, secretNames) || (namesSecret(words, secretWords) || hasSecretPart(words)) && !(numbers && slices.Contains(words, "token")) {
		return "its name"
	}
	if numbers {
		return ""
	}
	for _, key := range []string{"title", "description"} {
		text, _ := s[key].(string)
		if words := wordsOf(text); namesSecret(words, secretWords) || hasSecretPart(words) || namesPIN(text) {
			return "its " + key
		}
	}
	return ""
}

// namesSecret reports whether words name a secret, and none of them makes the phrase about
// a secret.
func namesSecret(words []string, secrets [][]string) bool {
	for _, secret := range secrets {
		for i := range words {
			if i+len(secret) <= len(words) && slices.Equal(words[i:i+len(secret)], secret) && !about(words[:i]) && !about(words[i+len(secret):min(i+len(secret)+1, len(words))]) {
				return true
			}
		}
	}
	return false
}

// hasSecretPart reports whether a word, or all words of a short name together, contains a
// part that names a secret.
func hasSecretPart(words []string) bool {
	if about(words) {
		return false
	}
	if len(words) <= 8 {
		words = append(slices.Clone(words), strings.Join(words, ""))
	}
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(word, part) })
	})
}

func about(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(aboutSecrets, w) })
}

// namesPIN reports whether a sentence asks for a PIN: in lower case, the word is a verb,
// too.
func namesPIN(text string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }), "PIN") || strings.Contains(strings.ToLower(text), "your pin")
}

// wordsOf splits a name in any case, or a sentence, into lower-case words, without digits.
func wordsOf(text string) []string {
	var b strings.Builder
	runes := []rune(text)
	for i, r := range runes {
		if !unicode.IsLetter(r) {
			if !unicode.IsDigit(r) {
				b.WriteByte(' ')
			}
			continue
		}
		camel := i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsUpper(runes[i-1]) && unicode.IsLower(runes[i+1]))
		if camel {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}

// refusesSecret returns the reason to reject a question, nil to accept it.
func (s *Server) refusesSecret(message string, schema []byte) error {
	field, why := secretField(schema)
	if why == "" && textAsksForSecret(message) {
		if field = freeField(schema); field != "" {
			why = "the question's message"
		}
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("the field %q asks for a secret (%s), and answers are recorded in the session in plain text: no person was asked; "+
		"configure the secret in the entry of server %s in the list of MCP servers, in env or headers, and ask without the field", clip(field, 64), why, s.Name)
}
