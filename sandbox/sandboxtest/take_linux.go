package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The following attempts use more than a command may have.

// takeMemory allocates 512 MiB and keeps them.
func takeMemory() error {
	data := make([]byte, 512<<20)
	for i := 0; i < len(data); i += 4096 {
		data[i] = byte(i)
	}
	runtime.KeepAlive(data)
	return errors.New("there was no limit")
}

// takeMemoryFile writes 512 MiB to a file in memory.
func takeMemoryFile() error {
	fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "memory")
	defer f.Close()
	return write(f, 512<<20)
}

func fill(name string, size int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Remove(name); err != nil { // a killed process leaves no file
		return err
	}
	return write(f, size)
}

func write(f *os.File, size int) error {
	data := make([]byte, 1<<20)
	for range size >> 20 {
		if _, err := f.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// alarms receives a signal every 50 microseconds, forever.
func alarms() error {
	got := make(chan os.Signal, 1)
	signal.Notify(got, unix.SIGALRM)
	every := unix.Itimerval{Interval: unix.Timeval{Usec: 50}, Value: unix.Timeval{Usec: 50}}
	if _, err := unix.Setitimer(unix.ItimerReal, every); err != nil {
		return err
	}
	for range got {
	}
	return nil
}

// takeThreads starts 500 threads that live for a moment.
func takeThreads() error {
	var wg sync.WaitGroup
	for range 500 {
		wg.Go(func() {
			runtime.LockOSThread()
			unix.Nanosleep(&unix.Timespec{Nsec: 500e6}, nil)
		})
	}
	wg.Wait()
	return nil
}

// useProcessors runs two threads for a second and fails if they had half a processor. The
// time to start this program, which is long on a slow machine, does not count.
func useProcessors() error {
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			panic("getrusage: " + err.Error())
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	start, began := used(), time.Now()
	end := began.Add(time.Second)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for time.Now().Before(end) {
			}
		})
	}
	wg.Wait()
	took, passed := used()-start, time.Since(began)
	if took > passed/2 {
		return fmt.Errorf("used %v of the processors in %v, and %v to start", took, passed, start)
	}
	return nil
}
