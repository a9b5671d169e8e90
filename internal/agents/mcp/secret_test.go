package mcp

import (
	"fmt"
	"testing"
)

// TestSecretField finds a field that asks for a secret in any case of its name, by its
// title or description, and within other fields. A field about secrets does not count.
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

// TestTextAsksForSecret: a message asks for a secret if it requests one from the user, not
// if it is about one, or about a thing that has one.
func TestTextAsksForSecret(t *testing.T) {
	for text, want := range map[string]bool{
		"Please enter your password":                 true,
		"The archive is locked. Enter its password:": true,
		"Password":                  true,
		"Password:":                 true,
		"Your new password, please": true,
		"What is your GitHub personal access token?":                      true,
		"What's the API key?":                                             true,
		"What is the password for the database?":                          true,
		"I need your API key to go on":                                    true,
		"A password is required":                                          true,
		"API key needed for api.example.com":                              true,
		"Provide the user name and password":                              true,
		"Could you paste the OpenAI apikey here":                          true,
		"Type the 6 digit verification code that was sent to you":         true,
		"Enter your PIN":                                                  true,
		"Confirm your passphrase":                                         true,
		"Choose a new password of at least 12 characters":                 true,
		"You need to enter your credentials before we continue":           true,
		"Give me the private key":                                         true,
		"The zip is password-protected. Which file should I open instead": false,
		"Enter the name of the password-protected zip":                    false,
		"Enter a title for the password protected archive":                false,
		"Give a reason to rotate the API key":                             false,
		"Which secret should I delete?":                                   false,
		"Enter the name of the secret":                                    false,
		"Enter the secret name":                                           false,
		"Provide a path to the private key":                               false,
		"What is the token limit?":                                        false,
		"What is the reason for the password change?":                     false,
		"What is the address of the password reset page?":                 false,
		"Enter the password policy":                                       false,
		"I will send the password to Bob. Which subject should it have?":  false,
		"The archive needs a password. What shall I do instead?":          false,
		"The token has expired. Where is the documentation?":              false,
		"Where should I store the API key?":                               false,
		"Never tell anybody your password. Which colour do you like?":     false,
		"Pin the version?":                                                false,
		"Enter the version to pin":                                        false,
		"How should I greet you?":                                         false,
		"":                                                                false,
	} {
		if got := textAsksForSecret(text); got != want {
			t.Errorf("%q asks for a secret: %v, want %v", text, got, want)
		}
	}
}

// TestFreeField: a message cannot get a secret if the answer is one of given values.
func TestFreeField(t *testing.T) {
	s := &Server{Name: "s"}
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"value":{"type":"string"}}}`:                                    true,
		`{"type":"object","properties":{"code":{"type":"integer"}}}`:                                    true,
		`{"type":"object","properties":{"ok":{"type":"boolean"},"value":{"type":"string"}}}`:            true,
		`{"type":"object","properties":{"ok":{"type":"boolean"}}}`:                                      false,
		`{"type":"object","properties":{"which":{"type":"string","enum":["a","b"]}}}`:                   false,
		`{"type":"object","properties":{"which":{"type":"array","items":{"type":"string","enum":[]}}}}`: false,
		`{"type":"object","properties":{}}`:                                                             false,
		``:                                                                                              false,
	} {
		if err := s.refusesSecret("Please enter your password", []byte(schema)); (err != nil) != want {
			t.Errorf("%s: %v, want a refusal: %v", schema, err, want)
		}
		if err := s.refusesSecret("How should I greet you?", []byte(schema)); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}
