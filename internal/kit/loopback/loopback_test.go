package loopback

import (
	"fmt"
	"net"
	"os"
	"testing"
)

func TestNobodyGetsAPortThatIsHeld(t *testing.T) {
	const many = 200
	seen := map[int]bool{}
	for range many {
		p, err := Take()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Release)
		if seen[p.Number] {
			t.Fatalf("port %d was given twice", p.Number)
		}
		seen[p.Number] = true
		if _, err := Exactly(p.Number); err == nil {
			t.Errorf("port %d was given to somebody who asked for it by number", p.Number)
		}
	}
}

// TestItsOwnerListens also after he let go of it, and before.
func TestItsOwnerListens(t *testing.T) {
	p, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p.Number))
	if err != nil {
		t.Fatalf("listen at a port that was taken for it: %v", err)
	}
	p.Release()
	if _, err := Exactly(p.Number); err == nil {
		t.Errorf("port %d was given away while somebody listens at it", p.Number)
	}
	l.Close()
	again, err := Exactly(p.Number)
	if err != nil {
		t.Fatalf("port %d is free again: %v", p.Number, err)
	}
	again.Release()
}

// TestOutgoingConnectionsAreElsewhere reads where this kernel takes ports for them.
func TestOutgoingConnectionsAreElsewhere(t *testing.T) {
	said, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if os.IsNotExist(err) {
		return // a kernel that begins at 49152
	}
	var low, high int
	if _, err := fmt.Sscan(string(said), &low, &high); err != nil {
		t.Fatal(err)
	}
	if low == 32768 && last >= low {
		t.Errorf("ports go up to %d, this kernel's own begin at %d", last, low)
	}
}
