// Package cluster says which nodes live, what they offer and how busy they are.
package cluster

import _ "github.com/hashicorp/memberlist"
