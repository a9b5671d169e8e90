// Package signature signs statements with SSH keys, and says whose signature one
// carries. A signature has the form of ssh-keygen -Y sign, in the namespace "rath", so
// that ssh-keygen -Y verify checks it as well.
//
//	key, err := signature.Open(".rath/signing_key")
//	armored, err := key.Sign(statement)
//	...
//	by, err := signature.Check(statement, armored)
//	trust, err := signature.ParseTrust(allowedSigners, revoked)
//	name, err := trust.Accept(by, ended)
//
// What a statement says is no matter of this package: of an ended run it is
// messages.Result.Say. No certificate is taken, neither in a signature nor in a list of
// signers.
//
// Files, the lowest first: key, check, revoked, trust.
package signature
