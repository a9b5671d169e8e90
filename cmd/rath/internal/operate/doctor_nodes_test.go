package operate

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
)

// TestNodeCredentials: a node answers questions and may ask none. With its credentials
// doctor judges only the connection; a wrong password and a wrong tenant remain errors.
func TestNodeCredentials(t *testing.T) {
	text := natsAccounts(permission.Place{Tenant: "acme", Generation: 1, Partitions: 4}, []permission.User{
		{Role: permission.RoleNode, Name: "node"},
		{Role: permission.RoleOperator, Name: "operator"},
		{Role: permission.RoleSubmit, Tenant: "acme", Name: "ana"},
	})
	for _, user := range []string{"NODE", "OPERATOR", "ANA"} {
		t.Setenv(user+"_PASSWORD", "secret"+user)
	}
	srv := natstest.StartConfigured(t, text)
	for _, tt := range []struct {
		user, password, tenant string
		ok                     bool
	}{
		{"node", "secretNODE", "", true},
		{"node", "secretNODE", "acme", true},
		{"node", "wrong", "", false},
		{"operator", "secretOPERATOR", "", false}, // which may ask, and no node answers
		{"ana", "secretANA", "other", false},
	} {
		env := map[string]string{"NATS_USER": tt.user, "NATS_PASSWORD": tt.password}
		a := &app.App{Getenv: func(name string) string { return env[name] }}
		a.Config.Server.Value, a.Config.Tenant.Value = srv.URL(), tt.tenant
		ok := true
		found, _ := checkSystem(t.Context(), a)
		for _, f := range found {
			ok = ok && f.OK
		}
		if ok != tt.ok || tt.ok && !strings.Contains(found[len(found)-1].Found, "may not ask") {
			t.Errorf("%s of tenant %q: %+v, want ok: %t", tt.user, tt.tenant, found, tt.ok)
		}
	}
}

// TestModelsOfNodes: nodes and routers without a key beside others with one are an
// error; a fleet without models is not.
func TestModelsOfNodes(t *testing.T) {
	with := messages.Node{Name: "a", Pools: []string{"default"}, Model: "large"}
	router := messages.Node{Name: "r", Pools: []string{"router"}, ModelError: "no key for api.openai.com"}
	dead := router
	dead.Dead = true
	for _, tt := range []struct {
		nodes       []messages.Node
		ok          bool
		found, says string
	}{
		{[]messages.Node{with, with, dead}, true, "of nodes: large", ""},
		{[]messages.Node{with, router}, false, "of nodes: large; none on r: no key for api.openai.com", "model.envFrom"},
		{[]messages.Node{router}, true, "of nodes: none; none on r: no key for api.openai.com", "agents fail there"},
		{[]messages.Node{with, {Name: "server"}}, true, "of nodes: large", ""},
	} {
		if f := checkModels(tt.nodes); f.OK != tt.ok || f.Found != tt.found || !strings.Contains(f.Remedy, tt.says) || (f.Remedy == "") != (tt.says == "") {
			t.Errorf("%+v, want %+v", f, tt)
		}
	}
}

// TestProgramsOfNodes: nodes whose agents have no shell are named. Routers run no agents.
func TestProgramsOfNodes(t *testing.T) {
	shell := messages.Node{Name: "a", Pools: []string{"default"}, Offers: []string{"agent@1"}, Isolation: "landlock+seccomp", Programs: []string{"sh", "git"}}
	bare := messages.Node{Name: "b", Pools: []string{"default"}, Offers: []string{"agent@1"}, Isolation: "landlock+seccomp"}
	router := messages.Node{Name: "r", Pools: []string{"router"}, Offers: []string{"auto@1"}, Isolation: "landlock+seccomp"}
	if f := checkPrograms([]messages.Node{shell, router}); f.Found != "git, sh" || f.Remedy != "" {
		t.Errorf("%+v", f)
	}
	if f := checkPrograms([]messages.Node{shell, bare}); f.Found != "git, sh; no shell on b" || !strings.Contains(f.Remedy, "image.flavor: tools") {
		t.Errorf("%+v", f)
	}
}

// TestTwoGossips: doctor names both halves of a fleet whose nodes use the same streams and
// do not share a gossip.
func TestTwoGossips(t *testing.T) {
	f := checkNodes([]messages.Node{
		{Name: "a", Incarnation: "n1", Pools: []string{"default"}},
		{Name: "b", Incarnation: "n2", Pools: []string{"default"}, Strangers: []string{"n1"}},
	})
	if f.OK || !strings.Contains(f.Remedy, "two fleets use the same streams") || !strings.Contains(f.Remedy, "b and a do not share") || !strings.Contains(f.Remedy, "gossip.fleet") {
		t.Errorf("%+v", f)
	}
}

// TestWorkflowsWithoutNode: doctor does not count workflows without a live node of
// their pool.
func TestWorkflowsWithoutNode(t *testing.T) {
	on := []messages.Workflow{{Name: "agent", Pool: "default"}, {Name: "agent", Pool: "gone"}, {Name: "change", Pool: "gone"}, {Name: "demo", Pool: "default"}}
	node := messages.Node{Name: "n", Pools: []string{"default"}, Offers: []string{"agent@1", "demo@1", "change@1"}}
	f := checkWorkflows(on, []messages.Node{node, {Name: "d", Dead: true, Pools: []string{"gone"}, Offers: []string{"change@1"}}}, true)
	if !f.OK || f.Found != "agent, demo; no node has change" || !strings.Contains(f.Remedy, "wait") {
		t.Errorf("%+v", f)
	}
	if f := checkWorkflows(on, nil, false); f.Found != "agent, change, demo" || f.Remedy != "" {
		t.Errorf("nodes not asked: %+v", f)
	}
}

// TestDoctorNamesTheRepair: if a live node could not fill a gap in lineage, doctor
// names the event stream and the command that fills it.
func TestDoctorNamesTheRepair(t *testing.T) {
	if found := checkGaps([]messages.Node{{Name: "a"}, {Name: "b", Dead: true, Gaps: []string{"EV_1_3"}}}); len(found) > 0 {
		t.Errorf("no living node has a gap: %+v", found)
	}
	found := checkGaps([]messages.Node{{Name: "a", Gaps: []string{"EV_1_2"}}, {Name: "b", Gaps: []string{"EV_1_0", "EV_1_2"}}})
	if len(found) != 1 || found[0].OK || !strings.Contains(found[0].Found, "EV_1_0, EV_1_2") || !strings.Contains(found[0].Remedy, `"rath cluster repair"`) {
		t.Errorf("%+v", found)
	}
}
