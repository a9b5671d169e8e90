package node

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestTaskImages: a task names images by the digests of blobs, or contains them; the
// model gets them with the prompt, and its first call obeys tool_choice. Data that is
// no image or not stored is rejected with the field, and so is an unknown tool in
// approve.
func TestTaskImages(t *testing.T) {
	t.Parallel()
	var picture bytes.Buffer
	must.Do(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 3, 2))))
	inline := "data:image/png;base64," + base64.StdEncoding.EncodeToString(picture.Bytes())
	bodies := make(chan string, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"message":{"content":"a grey one"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	}))
	defer server.Close()
	dir := t.TempDir()
	list := filepath.Join(dir, "models.yaml")
	must.Do(t, os.WriteFile(list, []byte("default: a\nmodels:\n  a: {url: "+server.URL+"/v1, free: true, can: [tools, images]}\n"), 0o600))
	n := must.Get(Start(t.Context(), &Options{Store: filepath.Join(dir, "store"), NATS: NATS{Level: "lazy"}, Models: Models{List: list}}))(t)
	defer n.Close()
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	digest := must.Get(c.Blobs().Put(t.Context(), bytes.NewReader(picture.Bytes())))(t)
	many := must.Get(json.Marshal(make([]string, session.MaxImages+1)))(t)
	for _, tt := range []struct {
		input  string
		shown  int
		choice string // as the wire has it
		code   run.Code
		says   string
	}{
		{`{"prompt":"which?","images":["` + digest.Digest.String() + `","` + inline + `"],"tool_choice":"none"}`, 2, `"tool_choice":"none"`, "", ""},
		{`{"prompt":"which?","images":["` + inline + `"]}`, 1, "", "", ""},
		{`{"prompt":"which?","tool_choice":"list_workspace_files"}`, 0, `"tool_choice":{"type":"function","function":{"name":"list_workspace_files"}}`, "", ""},
		{`{"prompt":"which?","tool_choice":"grep"}`, 0, "", run.CodeMalformed, `field tool_choice: there is no tool "grep"`},
		{`{"prompt":"which?","approve":["grep","list_workspace_files","*"]}`, 0, "", "", ""},
		{`{"prompt":"which?","memory":"a/b"}`, 0, "", run.CodeMalformed, `field memory: memory id "a/b"`},
		{`{"prompt":"which?","approve":["grep","list_*"]}`, 0, "", run.CodeMalformed, `field approve[1]: there is no tool "list_*"`},
		{`{"prompt":"which?","images":["` + strings.Repeat("0", 64) + `"]}`, 0, "", run.CodeError, "images[0]: no blob 000000"},
		{`{"prompt":"which?","images":["pic.png"]}`, 0, "", run.CodeMalformed, "images[0]"},
		{`{"prompt":"which?","images":["data:image/png,abc"]}`, 0, "", run.CodeMalformed, "field images[0]: the data is not in base64"},
		{`{"prompt":"which?","images":["data:image/png;base64,YWJj"]}`, 0, "", run.CodeMalformed, "it is no PNG, JPEG, GIF or WebP"},
		{`{"prompt":"which?","images":` + string(many) + `}`, 0, "", run.CodeMalformed, "field images: 17 of them, at most 16 are taken"},
		{`{"images":["` + inline + `"]}`, 0, "", run.CodeMalformed, "field images: there is no prompt that they go with"},
	} {
		r, err := c.Do(t.Context(), "agent", messages.Task{Input: json.RawMessage(tt.input), Tools: []string{"list_workspace_files"}}, nil)
		if tt.says != "" {
			if err != nil || r.Code != tt.code || !strings.Contains(r.Error, tt.says) {
				t.Errorf("%.80s: %+v, %v; want %s and %q", tt.input, r, err, tt.code, tt.says)
			}
			continue
		}
		if err != nil || r.State != run.Succeeded {
			t.Errorf("%.80s: %+v, %v", tt.input, r, err)
			continue
		}
		if body := <-bodies; strings.Count(body, inline) != tt.shown || !strings.Contains(body, "which?") || !strings.Contains(body, tt.choice) {
			t.Errorf("%.80s: the model was asked %s", tt.input, body)
		}
	}
}
