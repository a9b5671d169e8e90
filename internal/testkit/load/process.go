package load

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"time"
)

// Process is a process of this machine whose processor time is measured.
type Process struct {
	Name string
	PID  int
}

// Self is the process that makes the load.
func Self(name string) Process { return Process{Name: name, PID: os.Getpid()} }

// Use is the processor time that a process used while the load went on.
type Use struct {
	Name  string        `json:"name"`
	PID   int           `json:"pid"`
	CPU   time.Duration `json:"-"`     // see MarshalJSON
	Share float64       `json:"share"` // of one processor
	// Error is the reason why the value is unknown.
	Error string `json:"error,omitempty"`
}

// MarshalJSON counts the time in microseconds, as [Distribution] does.
func (u Use) MarshalJSON() ([]byte, error) {
	type plain Use
	return json.Marshal(struct {
		plain
		CPU int64 `json:"cpu_us"`
	}{plain(u), u.CPU.Microseconds()})
}

// Meter measures the processor time of processes.
type Meter struct {
	began     time.Time
	processes []Process
	before    []time.Duration
	errs      []error
}

// NewMeter begins to measure.
func NewMeter(ps ...Process) *Meter {
	m := &Meter{began: time.Now(), processes: ps}
	for _, p := range ps {
		used, err := CPUTime(p.PID)
		m.before, m.errs = append(m.before, used), append(m.errs, err)
	}
	return m
}

// Read returns the usage of each process since the meter was made.
func (m *Meter) Read() []Use {
	span := time.Since(m.began)
	var out []Use
	for i, p := range m.processes {
		u := Use{Name: p.Name, PID: p.PID}
		used, err := CPUTime(p.PID)
		if err = errors.Join(m.errs[i], err); err != nil {
			u.Error = err.Error()
		} else {
			u.CPU = used - m.before[i]
			u.Share = thousandths(u.CPU.Seconds() / span.Seconds())
		}
		out = append(out, u)
	}
	return out
}

// thousandths rounds to three decimal places.
func thousandths(f float64) float64 { return math.Round(f*1000) / 1000 }
