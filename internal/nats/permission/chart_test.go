package permission_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

var update = flag.Bool("update", false, "rewrite what the chart of accounts is told")

// TestChart compares the chart helm/accounts, which cannot ask this package while it is
// rendered, with the permissions of each role and the services between accounts.
func TestChart(t *testing.T) {
	const (
		tenant     = session.Tenant("<tenant>")
		generation = math.MaxUint32 // stands for <generation>
	)
	place := permission.Place{Generation: generation, Partitions: 1}
	// block writes lines of a configuration as a literal of YAML, without their indent.
	block := func(b *strings.Builder, key, indent string, lines []string) {
		fmt.Fprintf(b, "%s%s: |\n", indent, key)
		for _, l := range lines {
			l = strings.NewReplacer("EV_"+strconv.Itoa(generation)+"_0", "EV_<generation>_<partition>", strconv.Itoa(generation), "<generation>").Replace(l)
			b.WriteString(indent + "  " + l + "\n")
		}
	}
	config := func(users ...permission.User) string {
		a := permission.Accounts{Tenants: []session.Tenant{tenant}, Place: place, Users: users}
		return a.Config()
	}
	// between returns the lines from one that ends in mark to the one that closes it.
	between := func(text, mark, end string) (lines []string, rest string) {
		_, text, ok := strings.Cut(text, mark+"\n")
		text, rest, closed := strings.Cut(text, "\n"+end)
		if !ok || !closed {
			t.Fatalf("the configuration has no %q to %q", mark, end)
		}
		indent := len(text) - len(strings.TrimLeft(text, " "))
		for l := range strings.SplitSeq(text, "\n") {
			lines = append(lines, l[indent:])
		}
		return lines, rest
	}

	var b strings.Builder
	b.WriteString("# What each role may do and what accounts exchange, as a server is told, with <tenant>,\n" +
		"# <user>, <generation> and <partition> where an installation has its own. From package\n" +
		"# internal/nats/permission: go test ./internal/nats/permission -run TestChart -update\nroles:\n")
	for _, r := range permission.Roles() {
		u := permission.User{Role: r, Name: "<user>", Secret: "password: x"}
		if r.OfTenant() {
			u.Tenant = tenant
		}
		lines, _ := between(config(u), "permissions: {", "      }}")
		fmt.Fprintf(&b, "  %s:\n    tenant: %t\n", r, r.OfTenant())
		block(&b, "permissions", "    ", lines)
	}
	rest := config()
	for _, key := range []string{"exports", "imports", "tenantExports", "tenantImports"} {
		var lines []string
		lines, rest = between(rest, strings.ToLower(strings.TrimPrefix(key, "tenant"))+": [", "    ]")
		block(&b, key, "", lines)
	}

	name := filepath.Join("..", "..", "..", "helm", "accounts", "files", "permissions.yaml")
	if *update {
		must.Do(t, os.WriteFile(name, []byte(b.String()), 0o644))
	}
	have := must.Get(os.ReadFile(name))(t)
	if string(have) != b.String() {
		t.Errorf("the chart is told other permissions (-update rewrites helm/accounts/files/permissions.yaml); now it is\n%s", b.String())
	}
}
