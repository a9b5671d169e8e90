package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Service is a process that runs beside the commands of a sandbox for as long as the
// sandbox is open. Commands reach it on the loopback, which all of one sandbox share.
//
// In JSON its command is a line for sh, or the list of Command. "ready" is Port, a line or
// a list, and "timeout_ms" is Timeout in milliseconds.
type Service struct {
	Name    string   // 1 to 32 of A-Z a-z 0-9 _ -
	Command []string // the program and its arguments, run in the foreground
	// The service is ready when Port of the loopback accepts a connection, or else when
	// Ready, a command in the same sandbox, exits with 0. Without either it is ready as
	// soon as it has started.
	Port    int
	Ready   []string
	Timeout time.Duration // how long the service may take to become ready; zero: DefaultReady
	// Outside reports that the service keeps state outside the workspace, such as a store
	// in memory. Restoring the workspace does not undo that state.
	Outside bool
}

// Limits of services.
const (
	MaxServices     = 8                // of a sandbox
	MaxServicesText = 4 << 10          // bytes of the result of ServicesText
	DefaultReady    = 30 * time.Second // how long a service may take to become ready
	MaxReady        = 10 * time.Minute
	ServiceLog      = 32 << 10 // bytes kept of a service's output, half from the head, half from the tail
)

// ParseServices parses the services of a sandbox, in the order in which they are started.
// It accepts the result of [ServicesText] and hand-written text in the same form. "" is no
// services.
func ParseServices(text string) ([]Service, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var list []Service
	if err := strict([]byte(text), &list); err != nil {
		return nil, fmt.Errorf(`services: %w; write [{"name":"web","command":"python3 -m http.server 8000","ready":8000}]`, err)
	}
	_, err := ServicesText(list)
	return list, err
}

// ServicesText returns the canonical text of services, or an error if they are invalid.
func ServicesText(list []Service) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	if len(list) > MaxServices {
		return "", fmt.Errorf("services: %d are more than a sandbox has, %d; start some from one command", len(list), MaxServices)
	}
	for i, s := range list {
		if err := s.valid(); err != nil {
			return "", err
		}
		if slices.ContainsFunc(list[:i], func(o Service) bool { return o.Name == s.Name }) {
			return "", fmt.Errorf("service %s: two have this name; name each once", s.Name)
		}
	}
	text, err := plain(list)
	if err == nil && len(text) > MaxServicesText {
		err = fmt.Errorf("services: they take %d bytes of at most %d; put long commands into a file of the workspace", len(text), MaxServicesText)
	}
	return string(text), err
}

func (s Service) valid() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("service %.40q: "+format, append([]any{s.Name}, args...)...)
	}
	named := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	switch {
	case s.Name == "" || len(s.Name) > 32 || strings.ContainsFunc(s.Name, func(r rune) bool { return !named(r) }):
		return bad("a name has 1 to 32 of A-Z a-z 0-9 _ -")
	case !sensible(s.Command):
		return bad("it has no command; give one that runs in the foreground")
	case s.Ready != nil && !sensible(s.Ready):
		return bad("its ready is no command; name a port, or a command that exits with 0 when it is ready")
	case s.Port < 0 || s.Port > 65535:
		return bad("%d is no port; name one from 1 to 65535", s.Port)
	case s.Timeout < 0 || s.Timeout > MaxReady:
		return bad("timeout_ms %d: it is from 1 to %d", s.Timeout.Milliseconds(), MaxReady.Milliseconds())
	}
	return nil
}

// sensible reports whether argv is a command that can be started.
func sensible(argv []string) bool {
	return len(argv) > 0 && strings.TrimSpace(argv[0]) != "" && strings.TrimSpace(argv[len(argv)-1]) != "" &&
		!slices.ContainsFunc(argv, func(s string) bool { return strings.IndexByte(s, 0) >= 0 })
}

// Patience returns how long the service may take to become ready.
func (s Service) Patience() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return DefaultReady
}

// wireService is the JSON form of a Service.
type wireService struct {
	Name    string          `json:"name"`
	Command json.RawMessage `json:"command"`
	Ready   json.RawMessage `json:"ready,omitempty"`
	Timeout int64           `json:"timeout_ms,omitempty"`
	State   string          `json:"state,omitempty"`
}

// The states of a service. The default is the workspace.
const (
	inWorkspace = "workspace"
	outsideOfIt = "outside"
)

// MarshalJSON implements json.Marshaler. Equal services have equal text.
func (s Service) MarshalJSON() ([]byte, error) {
	w := wireService{Name: s.Name, Command: commandText(s.Command)}
	switch {
	case s.Port != 0:
		w.Ready = strconv.AppendInt(nil, int64(s.Port), 10)
	case s.Ready != nil:
		w.Ready = commandText(s.Ready)
	}
	if s.Patience() != DefaultReady {
		w.Timeout = s.Timeout.Milliseconds()
	}
	if s.Outside {
		w.State = outsideOfIt
	}
	return plain(w)
}

// UnmarshalJSON implements json.Unmarshaler. An unknown field is an error.
func (s *Service) UnmarshalJSON(data []byte) error {
	var w wireService
	if err := strict(data, &w); err != nil {
		return err
	}
	*s = Service{Name: w.Name, Timeout: time.Duration(min(w.Timeout, MaxReady.Milliseconds()+1)) * time.Millisecond, Outside: w.State == outsideOfIt}
	if w.State != "" && w.State != inWorkspace && w.State != outsideOfIt {
		return fmt.Errorf("service %.40q: state %.40q: it is workspace or outside", w.Name, w.State)
	}
	var err error
	if s.Command, err = readCommand(w.Command); err != nil || len(w.Ready) == 0 {
		return err
	}
	if json.Unmarshal(w.Ready, &s.Port) != nil {
		s.Ready, err = readCommand(w.Ready)
	} else if s.Port == 0 && string(w.Ready) != "null" {
		return fmt.Errorf("service %.40q: ready: 0 is no port; it is one of 1 to 65535, or a command", w.Name)
	}
	return err
}

// readCommand parses a line for sh or a list; empty data is nil.
func readCommand(data json.RawMessage) ([]string, error) {
	var line *string
	if len(data) == 0 {
		return nil, nil
	}
	if json.Unmarshal(data, &line) == nil {
		if line == nil {
			return nil, nil
		}
		return []string{"sh", "-c", *line}, nil
	}
	var list []string
	if json.Unmarshal(data, &list) != nil {
		return nil, fmt.Errorf("a command is a line for sh, or a list of the program and its arguments, and not %.40s", data)
	}
	return list, nil
}

// commandText encodes a command for readCommand.
func commandText(argv []string) json.RawMessage {
	var v any = argv
	if len(argv) == 3 && argv[0] == "sh" && argv[1] == "-c" {
		v = argv[2]
	}
	text, err := plain(v)
	if err != nil { // strings always encode
		panic(err)
	}
	return text
}

// plain encodes JSON without escaping < > &.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// strict decodes JSON and rejects unknown fields and trailing data.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = io.ErrUnexpectedEOF
	}
	return err
}
