package openviking_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/rathcluster/rath/memory/openviking"
)

// A note of an OpenViking server, which a short one stands for here.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Query().Get("uri"))
		fmt.Fprint(w, `{"status":"ok","result":"Likes it dark."}`)
	}))
	defer server.Close()
	m, err := openviking.New(&openviking.Options{URL: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Read(context.Background(), "memory://user/preferences/theme"))
	// Output:
	// GET viking://resources/rath/user/preferences/theme.md
	// Likes it dark. <nil>
}
