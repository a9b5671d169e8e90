package operate

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestPermissionConfig has a server read the output of --as nats.
func TestPermissionConfig(t *testing.T) {
	at := permission.Place{Tenant: "acme", Generation: 1, Partitions: 4}
	text := natsAccounts(at, []permission.User{
		{Role: permission.RoleNode, Name: "node"},
		{Role: permission.RoleOperator, Name: "operator"},
		{Role: permission.RoleSubmit, Tenant: "acme", Name: "ana"},
		{Role: permission.RoleTool, Tenant: "acme", Name: "tool-acme"},
		{Role: permission.RoleHost, Tenant: "acme", Name: "host-acme"},
	})
	for _, user := range []string{"NODE", "OPERATOR", "ANA", "TOOL_ACME", "HOST_ACME"} {
		t.Setenv(user+"_PASSWORD", "secret"+user)
		if !strings.Contains(text, "$"+user+"_PASSWORD") {
			t.Errorf("nobody logs in as %s", user)
		}
	}
	must.Report(t, natstest.CheckConfig(text))
	if err := natstest.CheckConfig(strings.ReplaceAll(text, "$NODE_PASSWORD", "$NO_SUCH_PASSWORD")); err == nil {
		t.Error("a password that is nowhere is accepted")
	}
}

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]int64{"40GiB": 40 << 30, "512Mi": 512 << 20, "1073741824": 1 << 30, "1TiB": 1 << 40, "64KiB": 64 << 10} {
		if got, err := parseBytes(in); err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "GiB", "-1", "0", "1GB", "1.5GiB", "9223372036854775807KiB", "1 GiB"} {
		if n, err := parseBytes(in); err == nil {
			t.Errorf("%q is %d", in, n)
		}
	}
}
