//go:build apiserver

package conversion

import (
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// noticed is how long a cluster goes on to send calls to a replica that was killed.
const noticed = 2 * time.Second

// seconds is for how long the API may be unreadable, on a busy machine too.
const seconds = time.Minute

// A balancer stands for the Service of the replicas: each connection goes to one of those that it knows.
type balancer struct {
	net.Listener
	mu    sync.Mutex
	ports map[int]bool
	open  map[net.Conn]int // from the API server, by the port of the replica
	dead  map[int]bool
}

func balance(t *testing.T) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: l, ports: map[int]bool{}, open: map[net.Conn]int{}, dead: map[int]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { b.carry(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		b.cut(func(int) bool { return true })
		all.Wait()
	})
	return b
}

// add lets calls go to a replica, until the returned function is called.
func (b *balancer) add(port int) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ports[port] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ports, port)
	}
}

// carry takes what is said on a connection to a replica, and back.
func (b *balancer) carry(from net.Conn) {
	defer from.Close()
	b.mu.Lock()
	ports := slices.Sorted(maps.Keys(b.ports))
	if len(ports) == 0 {
		b.mu.Unlock()
		return
	}
	port := ports[rand.IntN(len(ports))]
	dead := b.dead[port]
	b.open[from] = port
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, from)
	}()
	if dead {
		return
	}
	to, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { defer from.Close(); _, _ = io.Copy(from, to) }) // either side may end it
	_, _ = io.Copy(to, from)
	to.Close()
	back.Wait()
}

func (b *balancer) cut(which func(port int) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn, port := range b.open {
		if which(port) {
			conn.Close()
		}
	}
}

// kill is what callers see of a replica whose process was killed: connections end in the middle of a word, new ones are refused, and only later does
// nobody call it any more.
func (b *balancer) kill(port int) {
	b.mu.Lock()
	b.dead[port] = true
	b.mu.Unlock()
	b.cut(func(p int) bool { return p == port })
	time.AfterFunc(noticed, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ports, port)
	})
}

// called is a replica that the API server has a connection to, 0 if there is none.
func (b *balancer) called() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, port := range b.open {
		return port
	}
	return 0
}

// checkKill kills the one of two replicas that the API server talks to, while somebody reads what is stored as v1beta1.
func (c *cluster) checkKill(t *testing.T, whole *testing.T) {
	stop := c.serve(whole, false)
	defer stop()
	eventually(t, "readable", c.readable(t, claims()))
	victim := c.replicas.called()
	if victim == 0 {
		t.Fatal("the API server has asked nobody")
	}
	c.replicas.kill(victim)
	began, failed := time.Now(), time.Duration(0)
	for time.Since(began) < failed+noticed {
		if err := c.asked(t); err != nil {
			failed = time.Since(began)
		}
		if failed > seconds {
			t.Fatalf("reads still fail %v after a replica was killed", failed)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("the last read failed %v after the kill", failed.Round(time.Millisecond))
}
