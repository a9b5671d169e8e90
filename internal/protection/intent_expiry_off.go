//go:build off_intent_expiry

package protection

// IntentExpiry: a call that must not happen twice starts only while its intent is fresh.
const IntentExpiry = false
