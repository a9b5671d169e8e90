package archtest

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

const module = "github.com/rathcluster/rath"

// rule lists the imports that one package, or a folder of packages, may have: ours, and
// other modules. "std" is always allowed. test adds to both for test files.
type rule struct {
	ours, others []string
	test         []string
}

var anything = []string{"..."}

// rules is the layer table of ARCHITECTURE.md. The longest matching key counts;
// a key that ends in "/..." covers the packages below it.
var rules = map[string]rule{
	// Layer 0: vocabulary and pure values.
	"internal/core/canonical":      {},
	"internal/core/commitlog":      {ours: list("session", "blob", "internal/core/canonical"), test: list("internal/testkit/sessiontest")},
	"session":                      {ours: list("internal/core/canonical", "blob"), test: list("internal/core/commitlog", "internal/testkit/sessiontest")},
	"internal/evidence/openrath":   {ours: list("internal/core/canonical", "session", "blob"), test: list("internal/core/commitlog")},
	"internal/testkit/sessiontest": {ours: list("internal/core/commitlog", "session", "blob")},
	"internal/core/offload":        {ours: list("internal/core/commitlog", "internal/core/canonical", "session", "blob"), test: list("internal/testkit/sessiontest")},
	"blob":                         {},
	"blob/blobtest":                {ours: list("blob")},
	"llm":                          {ours: list("session")},
	"internal/models/exchange":     {ours: list("session", "llm")},
	"llm/llmtest":                  {ours: list("session", "llm"), others: list("github.com/google/go-cmp")},
	"internal/models/tokens":       {ours: list("session", "llm", "internal/core/excerpt"), others: list("github.com/tiktoken-go/tokenizer")},
	"internal/models/limiter":      {ours: list("llm"), test: list("internal/testkit/natstest", "internal/nats/api", "internal/nats/streams/streamstest")},
	"llm/openai":                   {ours: list("session", "llm", "internal/models/exchange"), others: list("github.com/sashabaranov/go-openai"), test: list("llm/scripted", "llm/anthropic", "llm/llmtest")},
	"llm/anthropic":                {ours: list("session", "llm", "internal/models/exchange"), test: list("llm/llmtest")},
	"llm/scripted":                 {ours: list("session", "llm", "internal/models/exchange"), others: list("golang.org/x/tools"), test: list("llm/openai")},
	"sandbox":                      {},
	"internal/sandbox/overlay":     {},
	"internal/sandbox/loopback":    {others: list("golang.org/x/sys")},
	"internal/sandbox/proc":        {others: list("golang.org/x/sys")},
	"internal/sandbox/confinement": {ours: list("internal/sandbox/proc"), others: list("golang.org/x/sys")},
	"sandbox/local":                {ours: list("sandbox", "internal/sandbox/confinement", "internal/sandbox/proc", "internal/core/excerpt", "internal/sandbox/directory", "internal/sandbox/loopback"), others: list("golang.org/x/sys"), test: list("internal/sandbox/overlay", "sandbox/sandboxtest")},
	"internal/files/filename":      {},
	"internal/sandbox/directory":   {ours: list("sandbox", "internal/files/filename", "internal/platform/filelock")},
	"internal/sandbox/mirror":      {ours: list("sandbox", "internal/sandbox/directory", "internal/platform/filelock"), others: list("golang.org/x/sys")},
	"internal/sandbox/execd":       {ours: list("sandbox", "sandbox/local", "internal/sandbox/directory", "internal/sandbox/loopback", "internal/sandbox/mirror"), others: list("golang.org/x/sys", "github.com/coder/websocket"), test: list("sandbox/sandboxtest")},
	"sandbox/docker":               {ours: list("sandbox", "sandbox/local", "internal/sandbox/proc", "internal/sandbox/execd", "internal/sandbox/directory", "internal/sandbox/loopback"), others: list("github.com/docker/docker", "github.com/containerd/errdefs", "golang.org/x/sys"), test: list("sandbox/sandboxtest", "sandbox/scripted")},
	"sandbox/kubernetes":           {ours: list("sandbox", "internal/sandbox/execd"), others: list("k8s.io/client-go", "k8s.io/apimachinery"), test: list("sandbox/sandboxtest", "sandbox/scripted", "golang.org/x/sys")},
	"sandbox/opensandbox":          {ours: list("sandbox", "internal/sandbox/execd"), others: list("github.com/coder/websocket"), test: list("sandbox/sandboxtest")},
	"sandbox/scripted":             {ours: list("sandbox", "internal/sandbox/directory"), others: list("golang.org/x/sys", "mvdan.cc/sh"), test: list("sandbox/sandboxtest")},
	"sandbox/sandboxtest":          {ours: list("sandbox"), others: list("golang.org/x/sys")},
	"memory":                       {test: list("internal/agents/notebook")},
	"internal/agents/notebook":     {ours: list("memory", "internal/core/excerpt"), others: list("golang.org/x/text"), test: list("memory/memorytest")},
	"memory/openviking":            {ours: list("memory", "internal/agents/notebook", "internal/core/excerpt"), test: list("memory/memorytest")},
	"memory/memorytest":            {ours: list("memory")},
	"internal/nats/notes": {
		ours:   list("llm", "memory", "internal/agents/notebook", "session", "internal/nats/conn", "internal/nats/streams", "internal/nats/eventlog"),
		others: list("github.com/nats-io/nats.go"),
		test:   list("memory/memorytest", "internal/testkit/natstest", "internal/nats/natsserver", "internal/nats/streams/streamstest"),
	},
	"internal/core/excerpt":      {},
	"internal/platform/filelock": {others: list("golang.org/x/sys")},
	"internal/platform/workers":  {},
	"internal/engine/stepper":    {ours: list("internal/core/journal")},
	"internal/wire":              {ours: list("internal/core/strict", "internal/core/excerpt", "blob", "memory", "messages", "run", "session")},
	"internal/wire/translate":    {ours: list("internal/core/commitlog", "internal/core/journal", "internal/core/strict", "internal/evidence/lineage", "internal/wire", "blob", "messages", "run", "sandbox", "session")},
	"internal/files/ignore":      {},
	// Layer 1.
	"run":                               {ours: list("session")},
	"internal/core/journal":             {ours: list("internal/core/commitlog", "internal/core/canonical", "internal/core/form", "run", "session", "blob", "internal/core/protection"), test: list("internal/core/journal/journaltest", "internal/testkit/sessiontest", "internal/testkit/transcript")},
	"internal/core/journal/journaltest": {ours: list("internal/core/commitlog", "internal/core/journal", "run", "session", "internal/testkit/transcript")},
	"internal/files/manifest":           {ours: list("blob", "internal/core/excerpt", "internal/files/ignore", "internal/files/filename"), others: list("golang.org/x/text", "github.com/klauspost/compress"), test: list("workspace", "sandbox/sandboxtest")},
	"internal/files/git":                {ours: list("blob", "internal/files/manifest", "internal/files/filename"), test: list("sandbox/sandboxtest")},
	"workspace":                         {ours: list("blob", "internal/files/manifest", "internal/files/ignore", "internal/files/filename", "internal/platform/filelock"), test: list("internal/sandbox/overlay", "sandbox/sandboxtest")},
	"internal/agents/rules":             {ours: list("internal/models/listfile", "internal/core/excerpt", "tool"), others: list("go.yaml.in/yaml/v3", "mvdan.cc/sh")},
	"internal/agents/guide":             {ours: list("blob", "internal/files/manifest"), others: list("go.yaml.in/yaml/v3")},
	"internal/agents/checks":            {ours: list("internal/core/excerpt", "internal/files/ignore", "internal/models/listfile", "sandbox", "tool"), others: list("go.yaml.in/yaml/v3")},
	"internal/agents/roster":            {ours: list("blob", "internal/agents/guide", "internal/files/manifest", "tool"), others: list("go.yaml.in/yaml/v3"), test: list("workspace")},
	"tool":                              {ours: list("session", "sandbox", "blob", "internal/files/ignore", "internal/agents/guide", "internal/core/schema"), others: list("github.com/google/jsonschema-go", "golang.org/x/net"), test: list("sandbox/local", "sandbox/scripted")},
	"internal/core/schema":              {ours: list("internal/core/excerpt"), others: list("github.com/google/jsonschema-go")},
	"internal/core/form":                {ours: list("internal/core/schema"), others: list("github.com/google/jsonschema-go")},
	"internal/agents/mcp":               {ours: list("internal/platform/filelock", "internal/models/listfile", "session", "sandbox", "blob", "tool", "llm"), others: list("github.com/modelcontextprotocol/go-sdk", "golang.org/x/oauth2", "go.yaml.in/yaml/v3"), test: list("internal/testkit/mcptest")},
	"internal/testkit/mcptest":          {others: list("github.com/modelcontextprotocol/go-sdk")},
	"internal/evidence/events":          {ours: list("internal/core/excerpt", "internal/core/journal", "internal/evidence/lineage", "messages", "run", "session"), test: list("internal/testkit/transcript")},
	"internal/evidence/lineage":         {ours: list("internal/core/excerpt", "messages", "internal/core/commitlog", "internal/core/canonical", "internal/core/journal", "session", "run", "sandbox", "blob")},
	// Layer 2.
	"flow": {
		ours: list("internal/engine/stepper", "internal/core/excerpt", "internal/core/journal", "session", "run", "llm", "memory", "tool"),
		test: list("flow/inprocess", "llm/scripted"),
	},
	"internal/sandbox/egress": {ours: list("internal/core/excerpt", "internal/core/journal", "sandbox", "session"), test: list("sandbox/sandboxtest")},
	"internal/engine": {
		ours: list("internal/engine/chain", "internal/engine/filemerge", "internal/engine/live", "internal/engine/question", "internal/engine/recall", "internal/engine/toolserver", "internal/engine/transcript", "internal/engine/lease", "internal/core/form", "internal/core/schema", "internal/engine/stepper", "internal/models/limiter", "internal/core/commitlog", "internal/core/canonical", "internal/agents/guide", "internal/agents/notebook", "internal/agents/rules", "internal/core/excerpt", "internal/core/journal", "flow", "blob", "session", "run", "llm", "memory", "sandbox", "internal/files/manifest", "workspace", "tool", "internal/core/protection", "internal/models/tokens"),
		test: list("internal/engine/inprocess", "internal/sandbox/egress", "llm/scripted", "llm/openai", "llm/anthropic", "llm/llmtest", "sandbox/local", "sandbox/scripted", "internal/testkit/sessiontest"),
	},
	"internal/engine/lease": {
		ours: list("internal/sandbox/egress", "internal/core/journal", "internal/core/canonical", "internal/core/excerpt", "internal/sandbox/overlay", "blob", "session", "sandbox", "tool", "workspace"),
		test: list("internal/engine", "internal/engine/inprocess", "flow", "internal/files/manifest", "sandbox/scripted"),
	},
	"internal/engine/chain":      {ours: list("internal/core/excerpt", "internal/core/journal", "internal/models/limiter", "internal/models/tokens", "llm", "session")},
	"internal/engine/filemerge":  {ours: list("blob", "flow", "internal/core/canonical", "internal/core/excerpt", "internal/engine/lease", "internal/files/manifest", "session", "workspace")},
	"internal/engine/question":   {ours: list("internal/core/journal"), test: list("internal/testkit/must")},
	"internal/engine/recall":     {ours: list("blob", "internal/core/canonical", "internal/core/excerpt", "internal/engine/transcript", "memory", "session")},
	"internal/engine/live":       {ours: list("internal/core/excerpt", "internal/core/journal", "llm", "run", "tool")},
	"internal/engine/toolserver": {ours: list("blob", "internal/engine/lease", "sandbox", "session", "tool")},
	"internal/engine/transcript": {ours: list("blob", "internal/agents/guide", "internal/core/excerpt", "internal/core/journal", "llm", "run", "session", "tool")},
	"internal/engine/inprocess":  {ours: list("internal/engine", "internal/core/commitlog", "internal/core/journal", "flow", "run", "session"), test: list("internal/testkit/sessiontest", "llm/scripted")},
	"internal/models/listfile":   {ours: list("llm"), others: list("go.yaml.in/yaml/v3")},
	"internal/models":            {ours: list("session", "internal/models/listfile", "llm", "llm/openai", "llm/anthropic"), others: list("go.yaml.in/yaml/v3")},
	"flow/flowtest":              {ours: list("internal/wire/translate", "messages", "internal/core/commitlog", "internal/agents/notebook", "internal/core/offload", "internal/core/journal", "blob", "session", "run", "llm", "llm/scripted", "memory", "sandbox", "sandbox/local", "tool", "flow", "internal/engine", "internal/engine/inprocess", "internal/engine/lease"), others: list("github.com/google/go-cmp"), test: list("sandbox/scripted")},
	"flow/inprocess":             {ours: list("internal/wire/translate", "internal/evidence/lineage", "messages", "internal/engine/toolserver", "internal/core/commitlog", "internal/agents/notebook", "internal/core/offload", "internal/core/journal", "blob", "session", "run", "llm", "memory", "sandbox", "internal/agents/mcp", "flow", "internal/engine", "internal/engine/inprocess", "internal/engine/lease"), test: list("llm/scripted", "tool")},
	"internal/evidence/dossier":  {ours: list("internal/core/excerpt", "internal/wire/translate", "internal/core/commitlog", "internal/core/journal", "blob", "session", "run", "internal/files/manifest", "tool", "internal/evidence/lineage", "messages", "internal/evidence/signature"), test: list("internal/core/canonical", "internal/agents/notebook", "internal/core/offload", "flow", "internal/engine", "internal/engine/inprocess", "internal/engine/lease", "llm", "memory", "sandbox", "sandbox/local", "llm/scripted", "flow/flowtest")},
	"internal/core/strict":       {ours: list("internal/core/excerpt", "run", "session")},
	"messages":                   {ours: list("internal/core/canonical", "internal/core/strict", "internal/core/excerpt", "session", "run", "blob", "sandbox"), test: list("internal/wire/translate", "internal/core/commitlog", "internal/core/journal", "internal/evidence/lineage", "internal/core/canonical", "flow", "memory", "internal/wire", "github.com/google/jsonschema-go")},
	"cluster":                    {others: list("github.com/hashicorp/memberlist")},
	"internal/nats/schedule":     {ours: list("internal/wire/translate", "internal/core/commitlog", "internal/core/journal", "session", "run", "messages"), test: list("internal/testkit/transcript")},
	"internal/nats/permission":   {ours: list("session", "run", "messages")},
	"internal/nats/conn":         {ours: list("internal/wire", "session", "run", "messages", "internal/nats/permission"), others: list("github.com/nats-io/nats.go"), test: list("internal/nats/streams", "internal/nats/streams/streamstest", "internal/testkit/natstest", "internal/nats/natsserver", "github.com/nats-io/nats-server/v2")},
	// Layer 3.
	"actors": {
		ours:   list("internal/engine/live", "internal/core/commitlog", "internal/core/journal", "flow", "internal/engine", "internal/engine/lease", "run", "messages", "session", "sandbox", "llm", "blob", "internal/core/protection", "internal/platform/workers"),
		others: list("github.com/asynkron/protoactor-go"),
		test:   list("internal/core/journal/journaltest", "internal/testkit/sessiontest", "flow/flowtest", "internal/engine/inprocess", "tool", "memory", "llm/scripted"),
	},
	"internal/nats/streams": {
		ours:   list("internal/wire", "internal/core/journal", "blob", "session", "run", "internal/evidence/lineage", "messages", "internal/core/offload", "internal/core/protection", "internal/nats/conn"),
		others: list("github.com/nats-io/nats.go"),
		test:   list("internal/core/commitlog", "internal/nats/eventlog", "internal/nats/streams/streamstest", "internal/testkit/natstest", "internal/nats/natsserver", "internal/testkit/sessiontest", "blob/blobtest", "github.com/nats-io/nats-server/v2"),
	},
	"internal/nats/streams/streamstest": {ours: list("session", "run", "messages", "internal/evidence/lineage", "internal/nats/conn", "internal/nats/streams", "internal/nats/natsserver", "internal/testkit/natstest"), others: list("github.com/nats-io/nats.go")},
	"internal/nats/eventlog": {
		ours:   list("internal/wire/translate", "internal/wire", "internal/core/commitlog", "internal/core/journal", "blob", "session", "run", "internal/evidence/lineage", "messages", "internal/core/offload", "internal/core/protection", "internal/nats/conn", "internal/nats/streams"),
		others: list("github.com/nats-io/nats.go"),
		test:   list("internal/nats/streams/streamstest", "internal/testkit/natstest", "internal/nats/natsserver", "internal/testkit/sessiontest", "blob/blobtest", "github.com/nats-io/nats-server/v2"),
	},
	"internal/nats/project": {
		ours:   list("internal/wire/translate", "internal/wire", "internal/core/commitlog", "internal/core/journal", "blob", "session", "run", "internal/evidence/lineage", "messages", "internal/core/offload", "internal/core/protection", "internal/nats/conn", "internal/nats/streams", "internal/nats/eventlog"),
		others: list("github.com/nats-io/nats.go"),
		test:   list("internal/nats/streams/streamstest", "internal/testkit/natstest", "internal/nats/natsserver", "internal/testkit/sessiontest", "blob/blobtest", "github.com/nats-io/nats-server/v2"),
	},
	"internal/nats/archive": {
		ours:   list("internal/wire/translate", "internal/core/commitlog", "internal/wire", "internal/nats/schedule", "internal/core/journal", "blob", "session", "run", "internal/evidence/lineage", "messages", "internal/core/offload", "internal/core/protection", "internal/nats/conn", "internal/nats/streams", "internal/nats/eventlog", "internal/nats/project", "internal/files/manifest"),
		others: list("github.com/nats-io/nats.go"),
		test:   list("internal/wire", "workspace", "internal/nats/streams/streamstest", "internal/testkit/natstest", "internal/nats/natsserver", "internal/testkit/sessiontest", "blob/blobtest", "github.com/nats-io/nats-server/v2"),
	},
	"internal/nats/dispatch": {
		ours:   list("internal/core/excerpt", "internal/wire/translate", "internal/core/commitlog", "internal/wire", "internal/core/journal", "blob", "session", "run", "internal/evidence/lineage", "messages", "internal/core/offload", "internal/core/protection", "internal/nats/conn", "internal/nats/streams", "internal/nats/eventlog", "internal/nats/project", "internal/nats/schedule", "internal/models/limiter", "internal/platform/workers"),
		others: list("github.com/nats-io/nats.go"),
		test:   list("internal/nats/archive", "internal/nats/streams/streamstest", "internal/testkit/natstest", "internal/nats/natsserver", "internal/testkit/sessiontest", "blob/blobtest", "github.com/nats-io/nats-server/v2", "internal/evidence/audit", "internal/core/journal/journaltest", "actors", "flow", "internal/engine", "llm", "llm/scripted", "client", "tool"),
	},
	"internal/nats/api": {
		ours:   list("internal/engine/live", "internal/nats/remotelog", "internal/nats/requests", "internal/wire/translate", "internal/core/strict", "internal/core/commitlog", "internal/wire", "internal/core/journal", "blob", "session", "run", "internal/evidence/lineage", "messages", "internal/core/offload", "internal/core/protection", "internal/nats/conn", "internal/nats/streams", "internal/nats/eventlog", "internal/nats/project", "internal/nats/archive", "internal/nats/dispatch", "internal/nats/schedule", "internal/nats/notes", "internal/agents/notebook", "flow", "internal/engine", "memory", "sandbox", "tool"),
		others: list("github.com/nats-io/nats.go"),
		test:   list("internal/nats/permission", "internal/nats/streams/streamstest", "internal/testkit/natstest", "internal/nats/natsserver", "internal/testkit/sessiontest", "blob/blobtest", "github.com/nats-io/nats-server/v2", "internal/evidence/audit", "internal/core/journal/journaltest", "actors", "flow", "internal/engine", "llm", "llm/scripted", "client", "tool"),
	},
	"client": {
		ours: list("internal/wire", "internal/nats/requests", "internal/nats/conn", "messages", "session", "run", "blob", "memory"),
		test: list("node", "llm/scripted", "flow"), // as a program of another module
	},
	"client/toolserver":       {ours: list("client", "messages", "tool")},
	"internal/nats/requests":  {ours: list("internal/wire", "internal/nats/conn", "internal/agents/notebook", "internal/core/excerpt", "internal/core/strict", "blob", "memory", "messages", "run", "session"), others: list("github.com/nats-io/nats.go")},
	"internal/nats/remotelog": {ours: list("client", "messages", "internal/core/commitlog", "internal/core/offload", "blob", "run", "session")},
	// Layer 4 and 5: wiring, everything is allowed but the server elsewhere.
	"node":                        {ours: anything, test: list("github.com/nats-io/nats.go", "go.yaml.in/yaml/v3")},
	"internal/nats/natsserver":    {ours: list("internal/platform/filelock", "session", "internal/nats/permission", "messages", "internal/core/protection"), others: list("github.com/nats-io/nats-server/v2", "golang.org/x/sys"), test: list("internal/testkit/natstest", "github.com/nats-io/nats.go")},
	"internal/testkit/natstest":   {ours: list("internal/nats/natsserver", "internal/platform/scratch"), others: list("github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/nats-io/jwt/v2")},
	"internal/evidence/audit":     {others: list("github.com/google/jsonschema-go"), test: list("internal/core/commitlog", "session", "internal/core/journal", "run", "flow", "internal/engine", "internal/engine/inprocess", "tool", "llm/scripted")}, // it shares no code; its tests record logs
	"internal/core/protection":    {test: list("internal/core/commitlog", "actors", "internal/core/journal", "flow", "internal/evidence/audit", "internal/engine", "internal/nats/natsserver", "internal/testkit/natstest", "internal/nats/api", "internal/nats/dispatch", "internal/nats/streams", "internal/nats/eventlog", "internal/nats/conn", "run", "session", "tool")},
	"internal/platform/scratch":   {others: list("golang.org/x/sys")},
	"internal/testkit/must":       {},
	"internal/testkit/transcript": {},
	"internal/archtest":           {},
	"internal/workflows/router":   {ours: list("internal/core/schema", "internal/wire", "internal/core/strict", "internal/agents/notebook", "internal/core/excerpt", "internal/core/journal", "flow", "llm", "memory", "messages", "run", "session", "tool"), others: list("github.com/google/jsonschema-go"), test: list("flow/flowtest", "internal/engine", "internal/engine/inprocess", "llm/scripted")},
	"internal/workflows/notify":   {ours: list("flow", "internal/core/journal", "internal/models/listfile", "internal/sandbox/egress", "internal/wire", "messages", "run", "session", "tool"), others: list("go.yaml.in/yaml/v3"), test: list("flow/flowtest")},
	"internal/evidence/signature": {others: list("github.com/hiddeco/sshsig", "golang.org/x/crypto")},
	"internal/platform/term":      {others: list("golang.org/x/term")},
	"internal/evidence/view":      {ours: list("internal/core/commitlog", "internal/core/excerpt", "internal/wire", "internal/core/journal", "blob", "session", "run", "llm", "messages", "sandbox", "tool", "internal/files/manifest", "internal/evidence/lineage", "internal/platform/term")},
	"internal/web/access":         {ours: list("client", "internal/core/excerpt", "internal/nats/conn", "internal/nats/permission", "internal/nats/streams", "internal/web/problem", "messages", "run", "session"), others: list("github.com/coreos/go-oidc/v3", "golang.org/x/oauth2", "golang.org/x/net", "golang.org/x/time", "go.yaml.in/yaml/v3", "github.com/nats-io/nats.go"), test: list("internal/nats/natsserver", "internal/nats/streams/streamstest", "internal/testkit/natstest")},
	"internal/...":                {ours: anything, others: list("golang.org/x/sys", "golang.org/x/term", "github.com/nats-io/nats.go")},
	"internal/web/pages":          {ours: anything, others: list("github.com/yuin/goldmark"), test: list("golang.org/x/net")},
	"internal/web/api":            {ours: anything, others: list("github.com/google/jsonschema-go")},
	"internal/nats/metrics":       {ours: anything, others: list("github.com/prometheus/client_golang")},
	"internal/testkit/bench":      {ours: anything, others: list("golang.org/x/sys", "github.com/nats-io/nats.go"), test: list("github.com/nats-io/nats-server/v2", "github.com/klauspost/compress")},
	"cmd/...":                     {ours: anything, others: list("github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term", "golang.org/x/sys", "go.yaml.in/yaml/v3"), test: list("golang.org/x/tools", "github.com/nats-io/nats.go", "github.com/sashabaranov/go-openai")},
	"examples":                    {ours: anything},
	"examples/...":                {ours: anything, others: list("github.com/modelcontextprotocol/go-sdk")},
	"e2e":                         {ours: anything, others: list("golang.org/x/sys", "github.com/nats-io/nats.go", "github.com/anishathalye/porcupine", "github.com/chromedp/chromedp", "github.com/chromedp/cdproto")},
	"e2e/...":                     {ours: anything, others: list("golang.org/x/sys", "github.com/nats-io/nats.go")},
}

func list(s ...string) []string { return s }

// everywhere is allowed in every test, and in the suites and tools of tests.
var everywhere = []string{module + "/internal/testkit/must", "github.com/google/go-cmp", module + "/internal/platform/scratch"}

type pkg struct {
	ImportPath, Name, Doc string
	Dir                   string
	GoFiles               []string
	Imports               []string
	TestImports           []string
	XTestImports          []string
	TestGoFiles           []string
	XTestGoFiles          []string
}

// packages lists the module's packages as go list sees them, for each build
// that has files of its own.
func packages(t *testing.T, tags string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Name,Doc,Dir,GoFiles,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles", "-tags="+tags, "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
}

func ruleFor(path string) (rule, bool) {
	if r, ok := rules[path]; ok {
		return r, true
	}
	best, found := "", false
	for key := range rules {
		if prefix, wide := strings.CutSuffix(key, "..."); wide && strings.HasPrefix(path, prefix) && len(key) > len(best) {
			best, found = key, true
		}
	}
	return rules[best], found
}

func TestImports(t *testing.T) {
	for _, tags := range []string{"", "e2e"} {
		for _, p := range packages(t, tags) {
			path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
			r, ok := ruleFor(path)
			if !ok {
				t.Errorf("%s has no rule: add it to the layer table", path)
				continue
			}
			check(t, path, r, p.Imports, false)
			check(t, path, r, append(p.TestImports, p.XTestImports...), true)
		}
	}
}

func check(t *testing.T, path string, r rule, imports []string, test bool) {
	t.Helper()
	for _, imp := range imports {
		if !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
			continue // the standard library
		}
		if own, ours := strings.CutPrefix(imp, module+"/"); ours {
			ok := own == path || slices.Contains(r.ours, own) || slices.Equal(r.ours, anything) || test && slices.Contains(r.test, own) || (test || strings.HasPrefix(path, "internal/testkit/") || strings.HasSuffix(path, "test")) && slices.Contains(everywhere, imp)
			// A suite beside the vocabulary may be used by its tests.
			ok = ok || test && strings.HasPrefix(own, path+"/") && strings.HasSuffix(own, "test")
			if !ok {
				t.Errorf("%s imports %s, which the layer table does not allow", path, own)
			}
			continue
		}
		allowed := r.others
		if test || strings.HasSuffix(path, "test") {
			allowed = slices.Concat(r.others, everywhere, r.test)
		}
		if !slices.ContainsFunc(allowed, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") }) {
			t.Errorf("%s imports %s, which the layer table does not allow", path, imp)
		}
	}
}

// themes are the packages of the command line, from the bottom up: one imports only
// those before it.
var themes = list("app", "reference", "selection", "follow", "fleet", "inspect", "operate", "evidence", "work", "start")

// TestThemes: the packages below cmd/rath import each other in one direction.
func TestThemes(t *testing.T) {
	prefix := module + "/cmd/rath/internal/"
	seen := 0
	for _, p := range packages(t, "") {
		name, ok := strings.CutPrefix(p.ImportPath, prefix)
		if !ok {
			continue
		}
		at := slices.Index(themes, name)
		if at < 0 {
			t.Errorf("cmd/rath/internal/%s is no theme: add it to the list", name)
			continue
		}
		seen++
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if other, ok := strings.CutPrefix(imp, prefix); ok && slices.Index(themes, other) >= at {
				t.Errorf("theme %s imports %s, which is above it", name, other)
			}
		}
	}
	if seen != len(themes) {
		t.Errorf("%d of %d themes are there", seen, len(themes))
	}
}

func TestPackageDocs(t *testing.T) {
	for _, p := range packages(t, "") {
		if p.Name != "" && p.Doc == "" {
			t.Errorf("package %s says nowhere what it is for", p.ImportPath)
		}
	}
}

// architecture is the text of ARCHITECTURE.md.
func architecture(t *testing.T) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md")))(t)
	return string(text)
}

// TestDependencies: ARCHITECTURE.md gives the reason for each module dependency.
func TestDependencies(t *testing.T) {
	_, table, _ := strings.Cut(architecture(t), "## Dependencies and why")
	var named []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			modules, _, _ := strings.Cut(cells[1], "(")
			for name := range strings.SplitSeq(modules, ",") {
				named = append(named, "/"+strings.TrimSpace(name)+"/")
			}
		}
	}
	for _, file := range []string{"go.mod", filepath.Join("helm", "go.mod"), filepath.Join("internal", "web", "api", "openapi", "go.mod")} {
		text := must.Get(os.ReadFile(filepath.Join("..", "..", file)))(t)
		direct := 0
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) != 2 || !strings.Contains(fields[0], "/") || fields[0] == "module" {
				continue // an indirect one has a comment behind it
			}
			direct++
			if !slices.ContainsFunc(named, func(name string) bool { return strings.Contains("/"+fields[0]+"/", name) }) {
				t.Errorf("ARCHITECTURE.md does not say why %s needs %s", file, fields[0])
			}
		}
		if direct == 0 {
			t.Errorf("%s names no module: the test shows nothing", file)
		}
	}
}

// ordered are the packages whose documentation states the order of their files.
var ordered = list("actors", "cmd/rath/internal/...", "flow", "internal/evidence/audit", "internal/evidence/dossier", "internal/evidence/events", "internal/engine", "internal/engine/chain", "internal/engine/lease", "internal/engine/live", "internal/engine/transcript", "internal/core/journal", "internal/evidence/lineage", "internal/nats/api", "internal/nats/archive", "internal/nats/conn", "internal/nats/dispatch", "internal/nats/eventlog", "internal/nats/notes", "internal/nats/permission", "internal/nats/project", "internal/nats/schedule", "internal/nats/streams", "internal/evidence/signature", "internal/evidence/view", "internal/web/stream", "session")

// order returns the files that the documentation of a package names, the lowest
// first; nil if it names none.
func (p pkg) order(t *testing.T) []string {
	t.Helper()
	_, list, ok := strings.Cut(p.Text(t), "Files, the lowest first:")
	if !ok {
		return nil
	}
	list, _, _ = strings.Cut(list, ".\npackage ")
	list = regexp.MustCompile(`(?s)\(.*?\)`).ReplaceAllString(strings.ReplaceAll(list, "\n//", ""), "")
	return regexp.MustCompile(`\w+`).FindAllString(list, -1)
}

// TestEngineClient: each client module of a container engine is in one file, so that
// another one can take its place.
func TestEngineClient(t *testing.T) {
	only := list("engine.go", "engine_moby.go")
	files, err := filepath.Glob(filepath.Join("..", "..", "sandbox", "docker", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		f := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly))(t)
		found := false
		for _, imp := range f.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			found = found || strings.HasPrefix(path, "github.com/docker/") || strings.HasPrefix(path, "github.com/moby/") || strings.HasPrefix(path, "github.com/containerd/")
		}
		if found != slices.Contains(only, filepath.Base(name)) {
			t.Errorf("%s: the engine's client is imported: %t; it belongs in %s alone", name, found, strings.Join(only, " and "))
		}
	}
}

// TestFileOrder: the documentation of each such package names its files, each once,
// and at most a tenth of the references from file to file go up.
func TestFileOrder(t *testing.T) {
	var found []string
	orders := map[string][]string{}
	all := packages(t, "")
	for _, p := range all {
		if order := p.order(t); order != nil {
			found = append(found, p.ImportPath)
			orders[p.ImportPath] = order
		}
	}
	fset := token.NewFileSet()
	compiled := importer.ForCompiler(fset, "gc", exports(t, found...))
	for _, p := range all {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		order := orders[p.ImportPath]
		if order == nil {
			if !strings.HasSuffix(path, "test") && slices.ContainsFunc(ordered, func(o string) bool {
				return o == path || strings.HasPrefix(path, strings.TrimSuffix(o, "...")) && o != strings.TrimSuffix(o, "...")
			}) {
				t.Errorf("the documentation of %s does not name its files in their order", p.ImportPath)
			}
			continue
		}
		named := map[string]int{}
		for _, name := range order {
			named[name]++
		}
		for _, file := range p.GoFiles {
			name := strings.TrimSuffix(file, ".go")
			if name != "doc" && named[name] != 1 {
				t.Errorf("the documentation of %s names %s %d times", p.ImportPath, file, named[name])
			}
			delete(named, name)
		}
		for name := range named {
			t.Errorf("the documentation of %s names %s, and there is no such file", p.ImportPath, name)
		}
		if up, all := p.references(t, fset, compiled, order); all == 0 || 10*up > all {
			t.Errorf("in %s %d of %d references go up against the order of its files: move what is referred to, or the file", p.ImportPath, up, all)
		}
	}
	if len(found) < len(ordered) {
		t.Errorf("%d packages name their files, at least %d have to", len(found), len(ordered))
	}
}

// references counts the references of a file to other files of the package, and those to a
// file above it.
func (p pkg) references(t *testing.T, fset *token.FileSet, compiled types.Importer, order []string) (up, all int) {
	t.Helper()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f := must.Get(parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution))(t)
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: compiled}
	checked := must.Get(conf.Check(p.ImportPath, fset, files, &info))(t)
	place := func(pos token.Pos) int {
		return slices.Index(order, strings.TrimSuffix(filepath.Base(fset.Position(pos).Filename), ".go"))
	}
	for id, o := range info.Uses {
		if o.Pkg() != checked || o.Parent() != nil && o.Parent() != checked.Scope() {
			continue // of another package, or local to a function
		}
		switch from, to := place(id.Pos()), place(o.Pos()); {
		case to > from:
			up, all = up+1, all+1
		case to < from:
			all++
		}
	}
	return up, all
}

// exports finds the compiled packages that packages are made of.
func exports(t *testing.T, paths ...string) importer.Lookup {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	compiled := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		compiled[name] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) }
}

// Text is the file with the documentation of a package, "" if it has none.
func (p pkg) Text(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.Dir, "doc.go"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

// TestExamples: each package that programs of others may import has an example.
func TestExamples(t *testing.T) {
	for _, p := range packages(t, "") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		if first, _, _ := strings.Cut(path, "/"); p.Name == "main" || first == "cmd" || first == "internal" || first == "e2e" || first == "examples" || strings.HasSuffix(path, "test") {
			continue
		}
		found := false
		for _, file := range append(p.TestGoFiles, p.XTestGoFiles...) {
			text := must.Get(os.ReadFile(filepath.Join(p.Dir, file)))(t)
			found = found || strings.Contains(string(text), "\nfunc Example")
		}
		if !found {
			t.Errorf("package %s has no example", path)
		}
	}
}

// TestFileLengths keeps files readable.
func TestFileLengths(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != root || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if n := strings.Count(string(data), "\n"); n > 600 {
			t.Errorf("%s has %d lines: split it by noun", name, n)
		}
		return nil
	})
	must.Do(t, err)
}

// mostOfClient bounds the packages of ours that a program links with package client.
const mostOfClient = 15

// TestClientIsSmall: a client stands on few packages: none that runs work or keeps logs.
func TestClientIsSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"/client").Output()
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for path := range strings.FieldsSeq(string(out)) {
		if own, ok := strings.CutPrefix(path, module+"/"); ok {
			ours = append(ours, own)
		}
	}
	if len(ours) == 0 || len(ours) > mostOfClient {
		t.Errorf("package client stands on %d packages, at most %d may be: %s", len(ours), mostOfClient, strings.Join(ours, ", "))
	}
}
