package helm

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// property is a value that the schema describes.
type property struct {
	Type                 any                 `json:"type"`
	Description          string              `json:"description"`
	Properties           map[string]property `json:"properties"`
	AdditionalProperties any                 `json:"additionalProperties"`
	Minimum              *int                `json:"minimum"`
	Enum                 []any               `json:"enum"`
}

func readSchema(t testing.TB, dir string) property {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var p property
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// leaves returns the properties that are set, by their path, without those that have
// properties in the schema.
func leaves(p property, at string, out map[string]property) map[string]property {
	if len(p.Properties) == 0 || strings.HasSuffix(at, ".resources") {
		out[at] = p
		return out
	}
	for name, sub := range p.Properties {
		leaves(sub, strings.TrimPrefix(at+"."+name, "."), out)
	}
	return out
}

func defaults(t testing.TB, dir string) values {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, data)
}

// at is the value at a path.
func at(v values, path string) (any, bool) {
	var it any = v
	for k := range strings.SplitSeq(path, ".") {
		m, ok := it.(values)
		if !ok {
			return nil, false
		}
		if it, ok = m[k]; !ok {
			return nil, false
		}
	}
	return it, true
}

// TestSchemaIsClosed: a misspelt key is an error at any level, and each value has a
// description and a default.
func TestSchemaIsClosed(t *testing.T) {
	var walk func(path string, p property)
	walk = func(path string, p property) {
		if p.Description == "" && path != "" {
			t.Errorf("%s has no description", path)
		}
		if len(p.Properties) > 0 && p.AdditionalProperties != false {
			t.Errorf("%q takes any key", path)
		}
		if strings.HasSuffix(path, ".resources") {
			return // Kubernetes' own words
		}
		for name, sub := range p.Properties {
			walk(strings.TrimPrefix(path+"."+name, "."), sub)
		}
	}
	for _, dir := range []string{chartDir, accountsDir} {
		schema := readSchema(t, dir)
		walk("", schema)
		set := defaults(t, dir)
		for path := range leaves(schema, "", map[string]property{}) {
			if _, ok := at(set, path); !ok && path != "global" {
				t.Errorf("%s is not in values.yaml of %s", path, dir)
			}
		}
	}
}

// TestSchemaRefuses lists mistakes and the place that the refusal names.
func TestSchemaRefuses(t *testing.T) {
	tests := []struct {
		at   string
		to   any
		want []string
	}{
		{"nodes", 3, []string{"nodes"}},
		{"node.replica", 3, []string{"/node", "replica"}},
		{"node.store.sizes", "1Gi", []string{"/node/store", "sizes"}},
		{"node.replicas", 0, []string{"/node/replicas", "minimum"}},
		{"node.replicas", "3", []string{"/node/replicas", "integer"}},
		{"node.slots", -1, []string{"/node/slots"}},
		{"node.drainSeconds", "20s", []string{"/node/drainSeconds", "integer"}},
		{"node.drainSeconds", 0, []string{"/node/drainSeconds"}},
		{"node.command", []string{}, []string{"/node/command"}},
		{"node.pool", "a.b", []string{"/node/pool"}},
		{"node.store.size", "lots", []string{"/node/store/size"}},
		{"node.env", []any{values{"value": "x"}}, []string{"/node/env/0", "name"}},
		{"node.env", []any{values{"name": "A", "valeu": "x"}}, []string{"/node/env/0", "valeu"}},
		{"node.extraArgs", []string{"port=0"}, []string{"/node/extraArgs/0"}},
		{"node.resources.limit", values{}, []string{"/node/resources", "limit"}},
		{"node.image.digest", "sha256:12", []string{"/node/image/digest"}},
		{"router.service.type", "Ingress", []string{"/router/service/type", "ClusterIP"}},
		{"router.service.port", 70000, []string{"/router/service/port"}},
		{"router.preStopSeconds", -1, []string{"/router/preStopSeconds"}},
		{"image.pullPolicy", "never", []string{"/image/pullPolicy"}},
		{"image.pullSecrets", []string{"registry"}, []string{"/image/pullSecrets/0"}},
		{"image.repository", "", []string{"/image/repository"}},
		{"nats.url", "nats://user:password@nats:4222", []string{"/nats/url"}},
		{"nats.url", "http://nats:8222", []string{"/nats/url"}},
		{"nats.url", "nats://a nats://b", []string{"/nats/url"}},
		{"nats.monitoring", []string{"nats:8222"}, []string{"/nats/monitoring/0"}},
		{"nats.replicas", 2, []string{"/nats/replicas"}},
		{"nats.durability", "strong", []string{"/nats/durability", "fsync"}},
		{"nats", values{"url": "nats://a", "durability": "replicated", "replicas": 1}, []string{"/nats/replicas"}},
		{"nats.auth.secret", "", []string{"/nats/auth/secret"}},
		{"nats.auth", values{"kind": "user", "secret": ""}, []string{"/nats/auth/secret"}},
		{"nats.auth.kind", "token", []string{"/nats/auth/kind"}},
		{"provision.enabled", true, []string{"/operator/auth/secret"}},
		{"toolbox.enabled", true, []string{"/operator/auth/secret"}},
		{"pools", []any{values{"slots": 3}}, []string{"/pools/0", "name"}},
		{"pools", []any{values{"name": "a", "slot": 3}}, []string{"/pools/0", "slot"}},
		{"pools", []any{values{"name": "a", "drainSeconds": 0}}, []string{"drainSeconds"}},
		{"pools", []any{values{"name": "A"}}, []string{"/pools/0/name"}},
		{"gossip.secret", "", []string{"/gossip/secret"}},
		{"gossip.fleet", "a.b", []string{"/gossip/fleet"}},
		{"operator.auth.kind", "token", []string{"/operator/auth/kind"}},
		{"provision.storeBytes", "40GB", []string{"/provision/storeBytes"}},
		{"provision.keepResults", "30d", []string{"/provision/keepResults"}},
		{"provision.partitions", 65, []string{"/provision/partitions"}},
		{"provision.pools", []string{"a"}, []string{"/provision", "pools"}},
		{"gossip.secretKey", "a/b", []string{"/gossip/secretKey"}},
		{"stopMarginSeconds", 5, []string{"/stopMarginSeconds"}},
		{"autoscaling.minReplicas", 0, []string{"/autoscaling/minReplicas"}},
		{"autoscaling.waitingPerNode", 0, []string{"/autoscaling/waitingPerNode"}},
		{"autoscaling.lagPerNode", 8, []string{"/autoscaling", "lagPerNode"}},
		{"security.runAsUser", 0, []string{"/security/runAsUser"}},
		{"networkPolicy.enabled", "yes", []string{"/networkPolicy/enabled", "boolean"}},
		{"fullnameOverride", "Fleet", []string{"/fullnameOverride"}},
		{"node.pool", "router", []string{"/node/pool"}},
		{"pools", []any{values{"name": "router"}}, []string{"/pools/0/name"}},
		{"sandbox.network", "openn", []string{"/sandbox/network"}},
		{"sandbox.network", "list:", []string{"/sandbox/network"}},
		{"sandbox.network", "list:https://a.example.com", []string{"/sandbox/network"}},
		{"node.podLabels", values{"rath/member": "no"}, []string{"/node/podLabels"}},
		{"router.podLabels", values{"rath/fleet": "other"}, []string{"/router/podLabels"}},
		{"operator.podLabels", values{"rath/member": "true"}, []string{"/operator/podLabels"}},
		{"commonLabels", values{"app.kubernetes.io/instance": "other"}, []string{"/commonLabels"}},
		{"node.resources.limits.memory", "2Gb", []string{"/node/resources/limits/memory"}},
		{"router.resources", values{"requests": values{"cpu": "1,5"}}, []string{"/router/resources/requests/cpu"}},
		{"operator.resources.limits.memory", "lots", []string{"/operator/resources/limits/memory"}},
		{"pools", []any{values{"name": "a", "resources": values{"limits": values{"memory": "2Gb"}}}}, []string{"/limits/memory"}},
		{"model.envFrom", []any{values{"secret": values{"name": "a"}}}, []string{"/model/envFrom/0"}},
		{"extraObjects", []any{values{"kind": "ConfigMap"}}, []string{"/extraObjects/0"}},
	}
	c := load(t, chartDir)
	if _, err := toRender(t, c, minimal(t)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range tests {
		_, err := toRender(t, c, with(t, minimal(t), tc.at, tc.to))
		if err == nil {
			t.Errorf("%s = %v is accepted", tc.at, tc.to)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s = %v: the error does not name %q: %v", tc.at, tc.to, want, err)
			}
		}
	}
}

// TestTemplatesRefuse lists mistakes that no schema can detect.
func TestTemplatesRefuse(t *testing.T) {
	for name, tc := range map[string]struct {
		v    values
		want string
	}{
		"no servers":            {values{}, "nats.url is required"},
		"min more than max":     {with(t, cases(t)["full"], "autoscaling.maxReplicas", 2), "autoscaling.minReplicas 3"},
		"no credentials":        {with(t, minimal(t), "nats.auth.kind", "none"), "nats.auth.kind is none"},
		"no TLS":                {with(t, minimal(t), "nats.url", "tls://a:4222,nats://b:4222"), "without TLS"},
		"two of three servers":  {with(t, minimal(t), "nats.monitoring", []string{"http://a:8222", "http://b:8222"}), "names 2 servers, and each stream has 3 replicas"},
		"one server thrice":     {with(t, minimal(t), "nats.monitoring", []string{"http://a:8222", "http://a:8222/"}), "names 1 servers, and each stream has 3 replicas"},
		"no fsync, one server":  {with(t, with(t, minimal(t), "nats.durability", "replicated"), "nats.monitoring", []string{"http://a:8222"}), "names 1 servers"},
		"the store evicts":      {with(t, minimal(t), "node.store.size", "50Gi"), "pool default: the pod would be evicted"},
		"a pool twice":          {with(t, minimal(t), "pools", []any{values{"name": "default"}}), "pool default is there twice"},
		"a long pool":           {with(t, minimal(t), "pools", []any{values{"name": strings.Repeat("a", 40)}}), "more than 52 characters"},
		"the routers' pool":     {with(t, with(t, minimal(t), "router.pool", "front"), "pools", []any{values{"name": "front"}}), "pool front is the routers'"},
		"pods without an image": {with(t, minimal(t), "sandbox.backend", "kubernetes"), "sandbox.image is needed"},
		"pods of anyone":        {with(t, cases(t)["full"], "serviceAccount.create", false), "every pod of the namespace"},
		"min of a pool":         {with(t, cases(t)["full"], "pools", []any{values{"name": "b", "autoscaling": values{"maxReplicas": 1}}}), "pool b: autoscaling.minReplicas 3"},
	} {
		if _, err := files(t, tc.v); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// samples are further valid values of properties whose schema alone does not determine one.
var samples = map[string]any{
	"image.digest":              "sha256:" + strings.Repeat("a", 64),
	"image.pullSecrets":         []any{values{"name": "other"}},
	"nats.url":                  "tls://other:4444",
	"web.url":                   "https://other.example.com",
	"nats.monitoring":           []any{"http://a:8333", "http://b:8333", "http://c:8333"},
	"toolbox.image.digest":      "sha256:" + strings.Repeat("d", 64),
	"pools":                     []any{values{"name": "other"}},
	"node.tmpSize":              "2Gi",
	"router.tmpSize":            "2Gi",
	"networkPolicy.dnsTo":       []any{values{"podSelector": values{}}},
	"networkPolicy.natsTo":      []any{values{"podSelector": values{}}},
	"networkPolicy.apiServerTo": []any{values{"podSelector": values{}}},
	"sandbox.private":           []any{"10.7.0.0/16"},
	"sandbox.secrets":           []any{"other.example.com X-Key: ${OTHER}"},
	"node.image.digest":         "sha256:" + strings.Repeat("b", 64),
	"router.image.digest":       "sha256:" + strings.Repeat("c", 64),
	"node.sandboxLimits":        "disk=3g",
	"node.store.size":           "1Gi",
	"provision.storeBytes":      "77Gi",
	"provision.keepResults":     "77h",
	"provision.placement.tags":  []any{"other"},
	"networkPolicy.routerFrom":  []any{values{"podSelector": values{}}},
	"networkPolicy.scalerFrom":  []any{values{"podSelector": values{}}},
	"networkPolicy.metricsFrom": []any{values{"podSelector": values{}}},
	"sandbox.network":           "open",
	"extraObjects":              []any{values{"apiVersion": "v1", "kind": "ConfigMap", "metadata": values{"name": "other"}}},
	"targets.to":                []any{values{"podSelector": values{}}},
	"networkPolicy.egress":      []any{values{"ports": []any{values{"port": 9999}}}},
}

// sample returns another valid value than the current one.
func sample(path string, p property, old any) any {
	if v, ok := samples[path]; ok {
		return v
	}
	switch name := path[strings.LastIndex(path, ".")+1:]; name {
	case "env":
		return []any{values{"name": "OTHER", "value": "x"}}
	case "envFrom":
		return []any{values{"configMapRef": values{"name": "other"}}}
	case "extraArgs":
		return []any{"-other"}
	case "command":
		return []any{"other"}
	case "tolerations":
		return []any{values{"key": "other", "operator": "Exists"}}
	case "resources":
		return values{"limits": values{"memory": "3Gi"}}
	case "topologySpread":
		return []any{values{"topologyKey": "other", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}}
	case "updateStrategy":
		return values{"type": "RollingUpdate", "rollingUpdate": values{"maxUnavailable": 3}}
	case "affinity":
		return values{"podAntiAffinity": values{}}
	case "volumes":
		return []any{values{"name": "other", "emptyDir": values{}}}
	case "volumeMounts":
		return []any{values{"name": "other", "mountPath": "/other"}}
	case "initContainers", "sidecars":
		return []any{values{"name": "other", "image": "other"}}
	case "nodeSelector", "annotations", "labels", "podAnnotations", "podLabels", "commonLabels", "commonAnnotations":
		return values{"example.com/other": "x"}
	}
	for _, e := range p.Enum {
		if !reflect.DeepEqual(e, old) {
			return e
		}
	}
	if text := fmt.Sprint(p.Type); strings.Contains(text, "integer") {
		return float64(*p.Minimum + 11)
	} else if text == "boolean" {
		return old != true
	}
	return "other"
}

// TestEachValueDoesSomething changes each value in the schema and expects another output.
func TestEachValueDoesSomething(t *testing.T) {
	render := func(v values) string {
		out, err := files(t, v)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(out)) {
			b.WriteString(name + "\n" + out[name])
		}
		return b.String()
	}
	// Values whose effect needs another one.
	needs := map[string]values{
		"nats.auth.kind":            {"nats.insecure": true},
		"nats.auth.userKey":         {"nats.auth.kind": "user"},
		"nats.auth.passwordKey":     {"nats.auth.kind": "user"},
		"operator.auth.userKey":     {"operator.auth.kind": "user"},
		"operator.auth.passwordKey": {"operator.auth.kind": "user"},
		"node.replicas":             {"autoscaling.enabled": false},
		"image.tag":                 {"image.digest": ""},
		"image.flavor":              {"image.digest": ""},
		"nameOverride":              {"fullnameOverride": ""},
		"serviceAccount.name":       {"serviceAccount.create": false, "sandbox.backend": "local"},
		"serviceAccount.create":     {"serviceAccount.name": "named"},
		"model.name":                {"node.model": ""},
		"metrics.labels":            {"metrics.podMonitor": true},
		"networkPolicy.metricsFrom": {"metrics.podMonitor": true},
	}
	base := cases(t)["full"]
	base = with(t, base, "security", values{"runAsUser": 1, "runAsGroup": 1, "fsGroup": 1})
	schema := readSchema(t, chartDir)
	all := leaves(schema, "", map[string]property{})
	if len(all) < 80 {
		t.Fatalf("only %d values: the schema is not read whole", len(all))
	}
	for path, p := range all {
		if path == "global" {
			continue
		}
		v := base
		for k, to := range needs[path] {
			v = with(t, v, k, to)
		}
		old, ok := at(v, path)
		if !ok {
			old, _ = at(defaults(t, chartDir), path)
		}
		to := sample(path, p, old)
		if reflect.DeepEqual(old, to) {
			t.Errorf("%s: the sample %v is no change", path, to)
		}
		if render(with(t, v, path, to)) == render(v) {
			t.Errorf("%s = %v changes nothing", path, to)
		}
	}
}
