package mcp

import (
	"fmt"
	"testing"
)

// TestSecretField: a field that asks for a secret is found in whichever case its name is
// written, by its title or description, and within other fields. One about secrets is none.
func TestSecretField(t *testing.T) {
	for _, name := range []string{
		"password", "PASSWORD", "PassWord", "pAsSwOrD", "userPassword", "user_password", "user-password", "dbPasswd", "db_pwd", "mypassword", "password2", "newpassword",
		"passphrase", "secret", "clientSecret", "CLIENT_SECRET", "token", "accessToken", "access_token", "GITHUB_TOKEN", "authtoken", "apiKey", "api_key", "APIKey", "api-key", "x-api-key", "apikey",
		"privateKey", "private_key", "PRIVATEKEY", "sshKey", "secretKey", "pin", "PIN", "userPin", "card_pin", "cvv", "CVV2", "cardCvc", "otp", "oneTimeCode", "credentials", "awsAccessKey", "pass", "db_pass",
	} {
		schema := fmt.Sprintf(`{"type":"object","properties":{"a":{"type":"string"},%q:{"type":"string"}}}`, name)
		if field, why := secretField([]byte(schema)); field != name || why != "its name" {
			t.Errorf("%s: %q, %q", name, field, why)
		}
	}
	for schema, want := range map[string]string{
		`{"properties":{"x":{"type":"string","format":"password"}}}`:                                                  `x: its format is "password"`,
		`{"properties":{"x":{"type":"string","format":"Password"}}}`:                                                  `x: its format is "password"`,
		`{"properties":{"x":{"type":"string","writeOnly":true}}}`:                                                     "x: it is writeOnly",
		`{"properties":{"x":{"type":"string","title":"Your password"}}}`:                                              "x: its title",
		`{"properties":{"x":{"type":"string","title":"YOUR PASSWORD:"}}}`:                                             "x: its title",
		`{"properties":{"x":{"type":"string","description":"Please enter the API key to use"}}}`:                      "x: its description",
		`{"properties":{"x":{"type":"string","description":"your one-time code"}}}`:                                   "x: its description",
		`{"properties":{"x":{"type":"string","description":"Enter your PIN"}}}`:                                       "x: its description",
		`{"properties":{"x":{"type":"object","properties":{"y":{"title":"The private key"}}}}}`:                       "y: its title",
		`{"properties":{"x":{"type":"array","items":{"type":"string","description":"Access tokens, each a token"}}}}`: "x: its description",
		`{"properties":{"x":{"anyOf":[{"type":"null"},{"type":"string","title":"Passphrase"}]}}}`:                     "x: its title",
		`{"properties":{"pin":{"type":"integer"}}}`:                                                                   "pin: its name",
		`{"properties":{"x":{"$ref":"#/$defs/p"}},"$defs":{"p":{"format":"password"}}}`:                               `p: its format is "password"`,
		`{"properties":{"place":{"type":"string","title":"Where to"},"copies":{"type":"integer"}}}`:                   ": ",
		`{"properties":{"maxTokens":{"type":"integer","description":"at most so many tokens"}}}`:                      ": ",
		`{"properties":{"token_limit":{"type":"integer"},"tokens":{"type":"integer"}}}`:                               ": ",
		`{"properties":{"secret_name":{"type":"string","description":"The name of the secret"}}}`:                     ": ",
		`{"properties":{"password_policy":{"type":"string"},"publicKey":{"type":"string"}}}`:                          ": ",
		`{"properties":{"hasPassword":{"type":"boolean"},"token":{"type":"string","enum":["a","b"]}}}`:                ": ",
		`{"properties":{"shopping":{"type":"string","description":"pin the version"},"spin":{}}}`:                     ": ",
		`{"properties":{"passenger":{"type":"string"},"tokenizer":{"type":"string"},"compass":{}}}`:                   ": ",
		`{"properties":{"keyboard":{"type":"string"},"monkey":{"type":"string"},"opinion":{}}}`:                       ": ",
		`no schema`: ": ",
		``:          ": ",
	} {
		field, why := secretField([]byte(schema))
		if got := field + ": " + why; got != want {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
	}
}
