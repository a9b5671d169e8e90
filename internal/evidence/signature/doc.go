// Package signature signs statements with SSH keys, and identifies the signers of
// statements. A signature has the form of ssh-keygen -Y sign, in the namespace "rath", so
// that ssh-keygen -Y verify can check it too.
//
//	key, err := signature.Open(".rath/signing_key")
//	armored, err := key.Sign(statement)
//	...
//	by, err := signature.Check(statement, armored)
//	trust, err := signature.ParseTrust(allowedSigners, revoked)
//	name, err := trust.Accept(by, ended)
//
// The package does not interpret statements; messages.Result.Say returns the statement of
// an ended run. Certificates are rejected, both in signatures and in lists of signers.
//
// Files, the lowest first: key, check, revoked, trust.
package signature
