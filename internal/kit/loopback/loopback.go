// Package loopback hands out ports of 127.0.0.1 to programs that begin to listen later.
//
// A port that is free now may be taken a moment later: kernels give the ports of their own range to outgoing connections, and another
// program may look for a port at the same time. So ports are chosen below that range, and a port is reserved by holding the UDP port of
// the same number, which no program here uses, until Release or the end of the program.
package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Kernels begin their own range at 32768 (Linux) or 49152.
const first, last = 20_000, 32_767

// A Port is not given to other callers while it is referenced.
type Port struct {
	Number int
	hold   net.PacketConn
}

// Take finds a port that is free.
func Take() (*Port, error) {
	const span = last - first + 1
	start := rand.IntN(span)
	for i := range span {
		if p, err := Exactly(first + (start+i)%span); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no port from %d to %d is free", first, last)
}

// Exactly takes the port of a number, or returns an error if it is not free.
func Exactly(number int) (*Port, error) {
	at := fmt.Sprintf("127.0.0.1:%d", number)
	hold, err := net.ListenPacket("udp4", at)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp4", at)
	if err != nil {
		return nil, errors.Join(err, hold.Close())
	}
	return &Port{Number: number, hold: hold}, l.Close()
}

// Preferably takes the port of a number, or any port if that is not free or number is 0.
func Preferably(number int) (*Port, error) {
	if number != 0 {
		if p, err := Exactly(number); err == nil {
			return p, nil
		}
	}
	return Take()
}

// Release ends the reservation of the port. A program that listens at it is not affected.
func (p *Port) Release() { p.hold.Close() }
